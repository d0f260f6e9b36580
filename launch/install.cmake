# What is installed beside the program: libraries and headers for find_package(entrodraft), batch scripts, the demo models,
# pages to read; and the packages of it that `cpack` makes (.deb and .tar.gz). Included by the root's CMakeLists.txt.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/entrodraft)
install(TARGETS entrodraft_settings entrodraft_dist entrodraft_files entrodraft_text entrodraft_model entrodraft_spec EXPORT entrodraft
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT entrodraft NAMESPACE entrodraft:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(launch/entrodraftConfig.cmake.in ${CMAKE_BINARY_DIR}/entrodraftConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/entrodraftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/entrodraftConfig.cmake ${CMAKE_BINARY_DIR}/entrodraftConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)
foreach(module dist model spec)
  install(DIRECTORY ${module}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/entrodraft/${module} COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "demo" EXCLUDE)
endforeach()

set(data_dir ${CMAKE_INSTALL_DATADIR}/entrodraft)
install(DIRECTORY examples DESTINATION ${data_dir} COMPONENT runtime)
install(DIRECTORY slurm DESTINATION ${data_dir} COMPONENT runtime)
install(DIRECTORY model/demo DESTINATION ${data_dir} COMPONENT runtime PATTERN "*.py" EXCLUDE)
# Scripts that read, draw and extrapolate what the program writes; requirements.txt says which packages they need.
install(FILES bench/report.py bench/recording.py bench/scaling.py bench/scaling_model.py bench/theory.py bench/presets.py
              bench/presets.json bench/synthetic_texts.py bench/runs.py bench/gpus.py bench/gpu_path.py bench/json_file.py
              bench/hardware.json bench/requirements.txt bench/explore.py bench/explore.js bench/explore.html
        DESTINATION ${data_dir}/bench COMPONENT runtime)
install(DIRECTORY bench/figures DESTINATION ${data_dir}/bench COMPONENT runtime FILES_MATCHING PATTERN "*.py")
install(FILES README.md CHANGELOG.md LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT runtime)

set(CPACK_PACKAGE_VENDOR "the entrodraft authors")
set(CPACK_PACKAGE_CONTACT "the entrodraft authors <entrodraft@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_GENERATOR TGZ)
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps NO_CACHE)
if(DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
# The archive is one tree; Debian gets the program and the libraries to build on as two packages.
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME entrodraft)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME entrodraft-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "entrodraft (= ${PROJECT_VERSION}), libopenmpi-dev, libonig-dev, libutf8proc-dev, zlib1g-dev, libfmt-dev, pkg-config")
include(CPack)
