# Finds libcurl, which reads HDFS over HTTP. An installed lockstep runs this same file for its users.

# Options take lists of protocols as text from this version on.
set(lockstep_curl_oldest 7.85)
if(NOT TARGET lockstep_curl AND NOT LOCKSTEP_CURL STREQUAL "OFF")
  find_package(CURL ${lockstep_curl_oldest} QUIET)
  if(CURL_FOUND)
    # A target that links the layer, in any folder, must see what the layer links.
    set_property(TARGET CURL::libcurl PROPERTY IMPORTED_GLOBAL ON)
    add_library(lockstep_curl INTERFACE IMPORTED GLOBAL)
    target_link_libraries(lockstep_curl INTERFACE CURL::libcurl)
  elseif(lockstep_is_installed OR LOCKSTEP_CURL STREQUAL "ON")
    message(FATAL_ERROR "expected libcurl ${lockstep_curl_oldest} or newer with its headers, but found none (Debian: libcurl4-openssl-dev); "
      "-DLOCKSTEP_CURL=OFF builds without it")
  endif()
endif()

set(lockstep_curl_library)
if(TARGET lockstep_curl)
  set(lockstep_curl_library lockstep_curl)
endif()
