# find_torch(): the libtorch that the torch backend is built over: torch_include, torch_cpu, torch_c10 and torch_version; or
# why_no_torch, with the remedy. Nothing is downloaded. Needed are headers, libtorch_cpu and libc10, from a torch wheel or an
# unpacked libtorch; its own CMake package also wants the CUDA toolkit that a wheel was made with.
function(find_torch)
  find_package(Python3 COMPONENTS Interpreter)
  if(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
    set(Python3_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  endif()
  if(Python3_EXECUTABLE)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(places "")
  foreach(prefix ${CMAKE_PREFIX_PATH}) # itself, or torch.utils.cmake_prefix_path
    list(APPEND places ${prefix} ${prefix}/../..)
  endforeach()
  list(APPEND places ${wheel})
  find_path(torch_include ATen/ops/linear.h HINTS ${places} PATH_SUFFIXES include NO_CACHE)
  find_library(torch_cpu torch_cpu HINTS ${places} PATH_SUFFIXES lib NO_CACHE)
  find_library(torch_c10 c10 HINTS ${places} PATH_SUFFIXES lib NO_CACHE)

  set(oldest 2.7) # wheels before it have another C++ ABI than today's compilers
  set(torch_version "")
  set(numbers "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h) # where it is, and was until 2.8
    if(EXISTS ${torch_include}/${header})
      file(STRINGS ${torch_include}/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
      string(APPEND numbers "${lines}")
    endif()
  endforeach()
  if(numbers MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
    set(torch_version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
  endif()
  set(why_no_torch "")
  if(NOT torch_include OR NOT torch_cpu OR NOT torch_c10)
    set(why_no_torch "found no include/ATen and lib/libtorch_cpu.so in '${places}'")
  elseif(torch_version VERSION_LESS oldest)
    set(why_no_torch "${torch_cpu} is of torch ${torch_version}, and the backend needs ${oldest} or later")
  endif()
  if(why_no_torch)
    string(APPEND why_no_torch "; install one with .venv/bin/pip install torch, or name another copy with -DCMAKE_PREFIX_PATH=DIR")
  endif()
  foreach(variable torch_include torch_cpu torch_c10 torch_version why_no_torch)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
endfunction()
