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

# Whoever links the layer, in whatever folder, must see what the layer links.
foreach(library ${lockstep_new_targets})
  set_target_properties(${library} PROPERTIES IMPORTED_GLOBAL TRUE)
endforeach()
