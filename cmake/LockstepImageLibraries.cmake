# Finds the libraries that read images, archives and compressed files. An installed lockstep runs this same file for its users.

if(NOT DEFINED LOCKSTEP_ZSTD)
  set(LOCKSTEP_ZSTD AUTO)
endif()
set(lockstep_image_libraries PNG::PNG JPEG::JPEG ZLIB::ZLIB Threads::Threads lockstep_libzip)
if(LOCKSTEP_ZSTD AND NOT TARGET lockstep_zstd)
  find_path(LOCKSTEP_ZSTD_INCLUDE zstd.h)
  find_library(LOCKSTEP_ZSTD_LIBRARY zstd)
  if(LOCKSTEP_ZSTD_INCLUDE AND LOCKSTEP_ZSTD_LIBRARY)
    add_library(lockstep_zstd UNKNOWN IMPORTED GLOBAL)
    set_target_properties(lockstep_zstd PROPERTIES
      IMPORTED_LOCATION ${LOCKSTEP_ZSTD_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_ZSTD_INCLUDE})
  elseif(LOCKSTEP_ZSTD STREQUAL "AUTO")
    message(STATUS "libzstd not found: zstd files of click logs are refused (Debian: libzstd-dev)")
  else()
    message(FATAL_ERROR "LOCKSTEP_ZSTD=${LOCKSTEP_ZSTD}: expected libzstd with its header zstd.h, but found none (Debian: libzstd-dev); "
      "LOCKSTEP_ZSTD=OFF builds without it")
  endif()
endif()
if(TARGET lockstep_zstd)
  list(APPEND lockstep_image_libraries lockstep_zstd)
endif()
set(lockstep_new_targets)
foreach(library ${lockstep_image_libraries})
  if(NOT TARGET ${library})
    list(APPEND lockstep_new_targets ${library})
  endif()
endforeach()

find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)

# libzip's own package file demands its command-line tools, which Debian ships in a package of their own.
if(NOT TARGET lockstep_libzip)
  find_path(LOCKSTEP_LIBZIP_INCLUDE zip.h REQUIRED)
  find_library(LOCKSTEP_LIBZIP zip REQUIRED)
  add_library(lockstep_libzip UNKNOWN IMPORTED)
  set_target_properties(lockstep_libzip PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_LIBZIP} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_LIBZIP_INCLUDE})
endif()

# Whoever links the layer, in whatever folder, must see what the layer links.
foreach(library ${lockstep_new_targets})
  set_target_properties(${library} PROPERTIES IMPORTED_GLOBAL TRUE)
endforeach()
