# Finds the libraries that cut and normalize text for tokenizers. An installed lockstep runs this same file for its users.

set(lockstep_text_libraries lockstep_pcre2 lockstep_utf8proc)
if(NOT TARGET lockstep_pcre2)
  find_path(LOCKSTEP_PCRE2_INCLUDE pcre2.h REQUIRED)
  find_library(LOCKSTEP_PCRE2 pcre2-8 REQUIRED)
  find_path(LOCKSTEP_UTF8PROC_INCLUDE utf8proc.h REQUIRED)
  find_library(LOCKSTEP_UTF8PROC utf8proc REQUIRED)
  # A target that links the layer, in any folder, must see what the layer links.
  add_library(lockstep_pcre2 UNKNOWN IMPORTED GLOBAL)
  set_target_properties(lockstep_pcre2 PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_PCRE2} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_PCRE2_INCLUDE})
  add_library(lockstep_utf8proc UNKNOWN IMPORTED GLOBAL)
  set_target_properties(lockstep_utf8proc PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_UTF8PROC} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_UTF8PROC_INCLUDE})
endif()
