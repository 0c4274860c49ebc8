# Finds Apache Arrow with Parquet, which reads Parquet files. An installed lockstep runs this same file for its users.

# Stores take options beside their URI from this version on.
set(lockstep_arrow_oldest 26)
set(lockstep_arrow_problem)
if(NOT TARGET lockstep_arrow AND NOT LOCKSTEP_ARROW STREQUAL "OFF")
  if(NOT LOCKSTEP_ARROW_ROOT)
    find_package(Arrow CONFIG QUIET)
    find_package(Parquet CONFIG QUIET)
  endif()
  if(Arrow_FOUND AND Parquet_FOUND AND NOT Arrow_VERSION VERSION_LESS lockstep_arrow_oldest)
    add_library(lockstep_arrow INTERFACE IMPORTED GLOBAL)
    foreach(library Parquet::parquet Arrow::arrow)
      if(TARGET ${library}_shared)
        set_property(TARGET ${library}_shared PROPERTY IMPORTED_GLOBAL ON)
        set_property(TARGET lockstep_arrow APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${library}_shared)
      else()
        set_property(TARGET ${library}_static PROPERTY IMPORTED_GLOBAL ON)
        set_property(TARGET lockstep_arrow APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${library}_static)
      endif()
    endforeach()
    message(STATUS "Arrow ${Arrow_VERSION} in ${Arrow_DIR}")
  elseif(Arrow_FOUND AND Parquet_FOUND)
    set(lockstep_arrow_problem "${Arrow_DIR} holds version ${Arrow_VERSION}, but ${lockstep_arrow_oldest} or newer is needed")
  elseif(NOT LOCKSTEP_ARROW_ROOT)
    set(lockstep_arrow_problem "find_package(Arrow) and find_package(Parquet) find none, and LOCKSTEP_ARROW_ROOT names no folder of pyarrow")
  else()
    # The wheel of Python's pyarrow holds headers and libraries, but no package file of CMake, and no names without the version.
    file(GLOB lockstep_arrow_libraries ${LOCKSTEP_ARROW_ROOT}/libarrow.so.*)
    if(NOT EXISTS ${LOCKSTEP_ARROW_ROOT}/include/parquet/arrow/reader.h OR NOT lockstep_arrow_libraries MATCHES "^[^;]*libarrow\\.so\\.([0-9]+)$")
      set(lockstep_arrow_problem "LOCKSTEP_ARROW_ROOT=${LOCKSTEP_ARROW_ROOT} does not hold include/parquet/arrow/reader.h and one libarrow.so.<version>")
    else()
      set(lockstep_arrow_so ${CMAKE_MATCH_1})
      file(STRINGS ${LOCKSTEP_ARROW_ROOT}/include/arrow/util/config.h lockstep_arrow_lines REGEX "define ARROW_VERSION_STRING")
      string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" lockstep_arrow_found "${lockstep_arrow_lines}")
      if(lockstep_arrow_found VERSION_LESS lockstep_arrow_oldest)
        set(lockstep_arrow_problem "${LOCKSTEP_ARROW_ROOT} holds version ${lockstep_arrow_found}, but ${lockstep_arrow_oldest} or newer is needed")
      elseif(NOT EXISTS ${LOCKSTEP_ARROW_ROOT}/libparquet.so.${lockstep_arrow_so})
        set(lockstep_arrow_problem "${LOCKSTEP_ARROW_ROOT} lacks libparquet.so.${lockstep_arrow_so}")
      else()
        # A target that links the layer, in any folder, must see what the layer links.
        add_library(lockstep_arrow_core SHARED IMPORTED GLOBAL)
        set_target_properties(lockstep_arrow_core PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_ARROW_ROOT}/libarrow.so.${lockstep_arrow_so})
        add_library(lockstep_parquet SHARED IMPORTED GLOBAL)
        set_target_properties(lockstep_parquet PROPERTIES
          IMPORTED_LOCATION ${LOCKSTEP_ARROW_ROOT}/libparquet.so.${lockstep_arrow_so}
          INTERFACE_LINK_LIBRARIES lockstep_arrow_core)
        # The wheel's libparquet exports the functions of its own OpenSSL. Programs and their libraries must find the system's first,
        # so that they never mix two versions. The linker then also leaves libparquet out if nothing else of it is used.
        add_library(lockstep_arrow INTERFACE IMPORTED GLOBAL)
        set_target_properties(lockstep_arrow PROPERTIES
          INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_ARROW_ROOT}/include
          INTERFACE_LINK_LIBRARIES
            "-Wl,--push-state,--no-as-needed,\"$<TARGET_LINKER_FILE:OpenSSL::Crypto>\",--as-needed;lockstep_parquet;-Wl,--pop-state")
        message(STATUS "Arrow ${lockstep_arrow_found} in ${LOCKSTEP_ARROW_ROOT}")
      endif()
    endif()
  endif()
  if(lockstep_arrow_problem AND (lockstep_is_installed OR LOCKSTEP_ARROW STREQUAL "ON" OR LOCKSTEP_ARROW_ROOT))
    message(FATAL_ERROR "Arrow cannot be used: ${lockstep_arrow_problem}. -DLOCKSTEP_ARROW=OFF builds without it.")
  endif()
endif()

# Targets that link the room of Parquet files link this, too.
set(lockstep_arrow_library)
if(TARGET lockstep_arrow)
  set(lockstep_arrow_library lockstep_arrow)
endif()
