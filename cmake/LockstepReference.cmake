# The API reference out of the public headers' comments: the target `docs`, where Doxygen is installed. Any warning fails it.
function(lockstep_add_reference)
  find_package(Doxygen 1.9 QUIET)
  if(NOT DOXYGEN_FOUND)
    return()
  endif()

  # By the link that programs include them by, so that they are named as there.
  set(include ${PROJECT_BINARY_DIR}/include)
  lockstep_public_headers(public_headers)
  list(TRANSFORM public_headers PREPEND ${include}/lockstep/)

  set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs)
  set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${PROJECT_SOURCE_DIR}/docs/reference.md)
  set(DOXYGEN_STRIP_FROM_PATH ${include} ${PROJECT_SOURCE_DIR})
  set(DOXYGEN_STRIP_FROM_INC_PATH ${include})
  set(DOXYGEN_FULL_PATH_NAMES YES)
  set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
  # A declaration that is plain has no comment, and is listed all the same.
  set(DOXYGEN_EXTRACT_ALL YES)
  set(DOXYGEN_EXCLUDE_SYMBOLS "lockstep::detail*")
  set(DOXYGEN_HIDE_FRIEND_COMPOUNDS YES)
  set(DOXYGEN_SORT_MEMBER_DOCS NO)
  set(DOXYGEN_BUILTIN_STL_SUPPORT YES)
  set(DOXYGEN_MACRO_EXPANSION YES)
  set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
  set(DOXYGEN_SEARCH_INCLUDES NO)
  # A semicolon would end an element of CMake's list; Doxygen needs none here.
  set(DOXYGEN_PREDEFINED
    "TORCH_ARG(T, name)=T name" "TORCH_MODULE(Name)=using Name = torch::nn::ModuleHolder<Name##Impl>"
    "LOCKSTEP_ANNOTATE(x)=" "LOCKSTEP_GUARDED_BY(x)=" "LOCKSTEP_REQUIRES(x)=")
  set(DOXYGEN_HAVE_DOT NO)
  set(DOXYGEN_CLASS_GRAPH NO)
  set(DOXYGEN_GENERATE_TAGFILE ${PROJECT_BINARY_DIR}/docs/lockstep.tag)
  set(DOXYGEN_QUIET YES)
  set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
  doxygen_add_docs(docs ${public_headers} ${PROJECT_SOURCE_DIR}/docs/reference.md)
endfunction()
