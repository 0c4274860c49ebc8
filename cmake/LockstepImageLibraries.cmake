# Finds the libraries that read images and archives. An installed lockstep runs this same file for its users.

set(lockstep_image_libraries PNG::PNG JPEG::JPEG ZLIB::ZLIB Threads::Threads lockstep_libzip)
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

# WebP is the one format that a build can do without. An installed lockstep sets ON or OFF, as it was built.
if(NOT DEFINED LOCKSTEP_WEBP)
  set(LOCKSTEP_WEBP AUTO CACHE STRING "Read WebP images: AUTO (if libwebp is found), ON or OFF")
  set_property(CACHE LOCKSTEP_WEBP PROPERTY STRINGS AUTO ON OFF)
endif()
set(lockstep_with_webp OFF)
if(LOCKSTEP_WEBP)
  if(NOT LOCKSTEP_WEBP STREQUAL "AUTO")
    set(required REQUIRED)
  endif()
  find_path(LOCKSTEP_WEBP_INCLUDE webp/demux.h ${required})
  find_library(LOCKSTEP_WEBP_LIBRARY webp ${required})
  find_library(LOCKSTEP_WEBPDEMUX_LIBRARY webpdemux ${required})
  unset(required)
  if(LOCKSTEP_WEBP_INCLUDE AND LOCKSTEP_WEBP_LIBRARY AND LOCKSTEP_WEBPDEMUX_LIBRARY)
    set(lockstep_with_webp ON)
  else()
    message(STATUS "libwebp not found (libwebp-dev): WebP images cannot be read")
  endif()
endif()
if(lockstep_with_webp)
  list(APPEND lockstep_image_libraries lockstep_webp)
  if(NOT TARGET lockstep_webp)
    list(APPEND lockstep_new_targets lockstep_webp)
    add_library(lockstep_webp INTERFACE IMPORTED)
    set_target_properties(lockstep_webp PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_WEBP_INCLUDE}
      INTERFACE_LINK_LIBRARIES "${LOCKSTEP_WEBPDEMUX_LIBRARY};${LOCKSTEP_WEBP_LIBRARY}")
  endif()
endif()

# Whoever links the layer, in whatever folder, must see what the layer links.
foreach(library ${lockstep_new_targets})
  set_target_properties(${library} PROPERTIES IMPORTED_GLOBAL TRUE)
endforeach()
