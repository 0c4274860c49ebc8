# What `cmake --install` puts down: the layers, their headers, the programs, and the package that find_package reads.
include(CMakePackageConfigHelpers)

set(lockstep_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
get_property(lockstep_layers GLOBAL PROPERTY LOCKSTEP_LAYERS)
list(TRANSFORM lockstep_layers PREPEND lockstep_ OUTPUT_VARIABLE lockstep_targets)

install(TARGETS lockstep_options lockstep_all ${lockstep_targets} EXPORT lockstep
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
lockstep_public_headers(lockstep_headers)
foreach(header IN LISTS lockstep_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder})
endforeach()

if(LOCKSTEP_BUILD_APPS)
  get_property(lockstep_app_targets DIRECTORY ${PROJECT_SOURCE_DIR}/apps PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS lockstep_app_targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
  endforeach()
  # train_images was called train_mnist.
  install(FILES $<TARGET_FILE_DIR:train_images>/train_mnist DESTINATION ${CMAKE_INSTALL_BINDIR})

  # The launcher of several workers finds its Python sources from its own folder.
  cmake_path(SET lockstep_bin NORMALIZE ${CMAKE_INSTALL_FULL_BINDIR})
  cmake_path(SET lockstep_libexec NORMALIZE ${CMAKE_INSTALL_FULL_LIBEXECDIR}/lockstep)
  cmake_path(RELATIVE_PATH lockstep_libexec BASE_DIRECTORY ${lockstep_bin} OUTPUT_VARIABLE lockstep_launcher_parts)
  file(READ ${PROJECT_SOURCE_DIR}/scripts/launch_local.sh lockstep_launcher)
  string(REPLACE "../libexec/lockstep" "${lockstep_launcher_parts}" lockstep_launcher "${lockstep_launcher}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/lockstep_launch_local CONTENT "${lockstep_launcher}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/launch_local.sh)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/lockstep_launch_local DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(GLOB lockstep_launcher_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/scripts/launch_local*.py)
  install(FILES ${lockstep_launcher_sources} DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/lockstep)
endif()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(lockstep_with_zstd OFF)
if(TARGET lockstep_zstd)
  set(lockstep_with_zstd ON)
endif()
set(lockstep_with_arrow OFF)
if(TARGET lockstep_arrow)
  set(lockstep_with_arrow ON)
endif()
set(lockstep_with_rocksdb OFF)
if(TARGET lockstep_rocksdb)
  set(lockstep_with_rocksdb ON)
endif()
set(lockstep_with_curl OFF)
if(TARGET lockstep_curl)
  set(lockstep_with_curl ON)
endif()
set(lockstep_with_ipsec_mb OFF)
if(lockstep_ipsec_mb_library)
  set(lockstep_with_ipsec_mb ON)
endif()
set(lockstep_with_prometheus OFF)
if(lockstep_prometheus_library)
  set(lockstep_with_prometheus ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstep-config.cmake.in
  ${PROJECT_BINARY_DIR}/lockstep-config.cmake INSTALL_DESTINATION ${lockstep_package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstep-targets.cmake DESTINATION ${lockstep_package_folder})
install(FILES
  ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepOpenSSL.cmake ${PROJECT_SOURCE_DIR}/cmake/LockstepTorch.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepCuda.cmake ${PROJECT_SOURCE_DIR}/cmake/LockstepImageLibraries.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepHwloc.cmake ${PROJECT_SOURCE_DIR}/cmake/LockstepPrometheus.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepTextLibraries.cmake ${PROJECT_SOURCE_DIR}/cmake/LockstepIpsecMb.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepArrow.cmake ${PROJECT_SOURCE_DIR}/cmake/LockstepCurl.cmake
  ${PROJECT_SOURCE_DIR}/cmake/LockstepRocksdb.cmake
  DESTINATION ${lockstep_package_folder})
