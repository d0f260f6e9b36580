# The package of this checkout for Spack, from 0.20 on:
#   spack repo add packaging/spack && spack install entrodraft             # for CPUs
#   spack install entrodraft+cuda cuda_arch=90                             # with GPU code for Hopper
# It takes the checkout that it lies in, at its last commit; `spack dev-build entrodraft@main` builds the files as they are.
import pathlib

from spack.package import *

try:  # Spack 1.0 and later; before, spack.package has them
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:
    pass


class Entrodraft(CMakePackage, CudaPackage):
    """Distributed speculative decoding of language models with entropy-based stop decisions, over MPI and NCCL."""

    git = pathlib.Path(__file__).resolve().parents[4].as_uri()

    license("Apache-2.0")
    version("main", branch="main")

    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("nlohmann-json@3.11:")
    depends_on("oniguruma")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("fmt@9:")
    depends_on("cuda@12.4:", when="+cuda")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"nccl@2.28: cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    depends_on("googletest", when="+tests")
    depends_on("boost@1.74: +program_options")
    depends_on("boost@1.74: +context", when="+tests")
    depends_on("python@3.9:", type="build")

    conflicts("%gcc@:11")  # C++20
    conflicts("cuda_arch=none", when="+cuda", msg="say which GPUs: cuda_arch=80 or later")
    for arch in (arch for arch in CudaPackage.cuda_arch_values if int(arch.rstrip("af")) < 80):
        conflicts(f"cuda_arch={arch}", when="+cuda", msg="the kernels use tensor cores that take bfloat16, from 8.0 on")

    generator("ninja")

    def cmake_args(self):
        args = [self.define_from_variant("ENTRODRAFT_CUDA", "cuda"), self.define_from_variant("ENTRODRAFT_TESTS", "tests")]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
            args.append(self.define("ENTRODRAFT_NCCL_ROOT", self.spec["nccl"].prefix))
        return args
