# How every target of the project is compiled, and the helpers that make them.

if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# Line tables are all that a sanitizer's report needs; full debug information would double the build, and so would
# optimisation, which makes the tests no faster.
set(CMAKE_CXX_FLAGS_SANITIZE "-O0 -g1 -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_SANITIZE "${CMAKE_CXX_FLAGS_SANITIZE}")

# The build tree has the folders of an install tree. Programs and libraries find each other by $ORIGIN in both, and
# LibTorch by the path that they were linked with.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR})
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN")
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  # CMake would pad a shorter run path of the build tree with colons, so that `cmake --install` can edit it in place. Each
  # colon is an empty entry, which makes the loader search the current directory for libraries.
  set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache needs to cache objects compiled with a precompiled header, and the base
  # directory makes a second clone hit what the first one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true CCACHE_PCH_EXTSUM=true ${LOCKSTEP_CCACHE})
endif()

# Reading LibTorch's symbols is most of what a link does; lld takes a fifth of the usual linker's time for it.
find_program(LOCKSTEP_LLD ld.lld)
if(LOCKSTEP_LLD AND PROJECT_IS_TOP_LEVEL)
  add_link_options(-fuse-ld=lld)
endif()

# Programs in the build tree read headers as an installed copy would: "lockstep/<layer>/<name>.h".
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/lockstep SYMBOLIC)

add_library(lockstep_options INTERFACE)
set_target_properties(lockstep_options PROPERTIES EXPORT_NAME options)
target_compile_features(lockstep_options INTERFACE cxx_std_20)
target_compile_options(lockstep_options INTERFACE $<BUILD_INTERFACE:-Wall;-Wextra;-Wno-missing-field-initializers>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(lockstep_options INTERFACE $<BUILD_INTERFACE:-Wthread-safety>)
endif()
target_include_directories(lockstep_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

if(LOCKSTEP_SANITIZER STREQUAL "address")
  set(lockstep_sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-sanitize=vptr)
elseif(LOCKSTEP_SANITIZER STREQUAL "thread")
  set(lockstep_sanitize -fsanitize=thread)
elseif(LOCKSTEP_SANITIZER)
  message(FATAL_ERROR "LOCKSTEP_SANITIZER: expected address or thread, but got '${LOCKSTEP_SANITIZER}'")
endif()
if(lockstep_sanitize)
  # GCC sees uninitialised memory in LibTorch's and its own headers once they are instrumented.
  target_compile_options(lockstep_options INTERFACE ${lockstep_sanitize}
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(lockstep_options INTERFACE ${lockstep_sanitize})
endif()

# Clang's precompiled header names the files of its clone, so each clone makes its own, and ccache compares the checksum file
# next to it instead. CMake's own flags pass the header's absolute path in a way that ccache cannot make relative.
set(lockstep_has_clang_pch OFF)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND LOCKSTEP_CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(lockstep_has_clang_pch ON)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
endif()

# lockstep_write_pch_checksum(file): what the precompiled header is made of, besides the compiler and its flags: the header and
# LibTorch.
function(lockstep_write_pch_checksum file)
  set(header ${PROJECT_SOURCE_DIR}/cmake/lockstep_pch.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(SHA256 ${header} checksum)
  file(TIMESTAMP ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include/torch/torch.h torch_time UTC)
  file(CONFIGURE OUTPUT ${file} CONTENT "${checksum} ${LOCKSTEP_TORCH_ROOT} ${torch_time}\n" @ONLY)
endfunction()

# lockstep_use_pch(target): compile with the one precompiled header of the build. All users share its flags,
# position-independent code included, because GCC refuses a header compiled otherwise.
function(lockstep_use_pch target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  if(NOT TARGET lockstep_pch)
    file(WRITE ${PROJECT_BINARY_DIR}/lockstep_pch.cpp "")
    add_library(lockstep_pch OBJECT ${PROJECT_BINARY_DIR}/lockstep_pch.cpp)
    target_link_libraries(lockstep_pch PRIVATE lockstep_options lockstep_torch)
    target_compile_options(lockstep_pch PRIVATE -fPIC)
    # Named by the include link, the header reads alike in every clone: ccache then serves one from another.
    target_precompile_headers(lockstep_pch PRIVATE <lockstep/cmake/lockstep_pch.h>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(lockstep_pch PRIVATE -fpch-preprocess)
    elseif(lockstep_has_clang_pch)
      set_target_properties(lockstep_pch PROPERTIES CXX_COMPILER_LAUNCHER "")
      lockstep_write_pch_checksum(${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/lockstep_pch.dir/cmake_pch.hxx.pch.sum)
    endif()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
  target_precompile_headers(${target} REUSE_FROM lockstep_pch)
endfunction()

# lockstep_torch_free(source...): these sources see no torch header; they skip the precompiled one (which
# makes them compile in a second) and are what clang-tidy can afford to read.
function(lockstep_torch_free)
  if(NOT ARGN)
    return()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TORCH_FREE ${source})
  endforeach()
endfunction()

function(lockstep_write_torch_free_list)
  get_property(sources GLOBAL PROPERTY LOCKSTEP_TORCH_FREE)
  list(JOIN sources "\n" text)
  file(WRITE ${PROJECT_BINARY_DIR}/torch_free_sources.txt "${text}\n")
endfunction()

# lockstep_add_room([INTERNAL] [TORCH_FREE] [SOURCES ...] [TORCH_FREE_SOURCES ...] [LINK ...] [VERSION] [NAME part]): the room
# of the folder that calls it, as an object library named lockstep_<layer>_<room>. INTERNAL: none of its headers is installed.
# TORCH_FREE: it is compiled without LibTorch's headers; else TORCH_FREE_SOURCES lists sources that do without them.
# VERSION: its sources see LOCKSTEP_VERSION. NAME: a part of the folder's sources, named lockstep_<layer>_<part>.
function(lockstep_add_room)
  cmake_parse_arguments(arg "INTERNAL;TORCH_FREE;VERSION" "NAME" "SOURCES;TORCH_FREE_SOURCES;LINK" ${ARGN})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE room)
  string(REPLACE "/" "_" target lockstep_${room})
  if(arg_NAME)
    string(REPLACE "/" "_" target lockstep_${room}_${arg_NAME})
  endif()
  add_library(${target} OBJECT ${arg_SOURCES} ${arg_TORCH_FREE_SOURCES})
  target_link_libraries(${target} PUBLIC lockstep_options PRIVATE ${arg_LINK})
  if(arg_VERSION)
    target_compile_definitions(${target} PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
  endif()
  if(arg_TORCH_FREE)
    target_compile_options(${target} PRIVATE -fPIC)
    lockstep_torch_free(${arg_SOURCES})
  else()
    target_link_libraries(${target} PRIVATE lockstep_torch)
    lockstep_use_pch(${target})
    lockstep_torch_free(${arg_TORCH_FREE_SOURCES})
  endif()
  if(arg_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_INTERNAL_ROOMS ${room})
  endif()
endfunction()

# lockstep_add_layer(name [ROOMS ...] [PARTS ...] [LINK ...] [PRIVATE_LINK ...]): one layer of the library, as target
# lockstep_<name> and lockstep::<name>. A room may include headers of itself and of those before it, and a source of the layer's
# own folder, which is in one of its PARTS, those of all rooms; tests/checks/layering reads the order here.
function(lockstep_add_layer name)
  cmake_parse_arguments(arg "" "" "ROOMS;PARTS;LINK;PRIVATE_LINK" ${ARGN})
  foreach(room IN LISTS arg_ROOMS)
    add_subdirectory(${room})
  endforeach()
  add_library(lockstep_${name})
  lockstep_take_rooms(lockstep_${name} ${name} ${arg_ROOMS} ${arg_PARTS})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  # An installed lockstep makes lockstep_torch again, from the LibTorch of its user.
  target_link_libraries(lockstep_${name} PUBLIC lockstep_options
    $<BUILD_INTERFACE:lockstep_torch> $<INSTALL_INTERFACE:$<1:lockstep_torch>> ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYERS ${name})
endfunction()

# lockstep_take_rooms(target layer room...): compiles these rooms of a layer into the target.
function(lockstep_take_rooms target layer)
  foreach(room IN LISTS ARGN)
    string(REPLACE "/" "_" room ${layer}_${room})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:lockstep_${room}>)
  endforeach()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# lockstep_public_headers(variable): the headers that users include, relative to the project: those of all layers that lie
# neither in a folder named internal nor in an internal room, and the folder headers next to lockstep.h.
function(lockstep_public_headers variable)
  get_property(layers GLOBAL PROPERTY LOCKSTEP_LAYERS)
  get_property(internal_rooms GLOBAL PROPERTY LOCKSTEP_INTERNAL_ROOMS)
  list(JOIN internal_rooms "|" internal)
  set(public lockstep.h)
  foreach(layer IN LISTS layers)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${layer}/*.h)
    list(FILTER headers EXCLUDE REGEX "/internal/|^(${internal})/")
    list(APPEND public ${layer}.h ${headers})
  endforeach()
  set(${variable} ${public} PARENT_SCOPE)
endfunction()

# lockstep_add_umbrella(): the target lockstep::lockstep, which stands for all layers as lockstep.h does.
function(lockstep_add_umbrella)
  get_property(layers GLOBAL PROPERTY LOCKSTEP_LAYERS)
  list(TRANSFORM layers PREPEND lockstep_)
  add_library(lockstep_all INTERFACE)
  add_library(lockstep::lockstep ALIAS lockstep_all)
  set_target_properties(lockstep_all PROPERTIES EXPORT_NAME lockstep)
  target_link_libraries(lockstep_all INTERFACE ${layers})
endfunction()

# lockstep_add_test(name [NO_UNITY] SOURCES ... [TORCH_FREE ...] [LINK ...] [LABELS ...] [TIMEOUT s] [COST s]): a GoogleTest program.
# ctest lists its tests one by one with LOCKSTEP_LIST_TESTS, else the program as one. NO_UNITY: its sources use the same names for
# different things, and are always compiled one by one. COST: of a program that takes minutes, so that it begins early.
function(lockstep_add_test name)
  cmake_parse_arguments(arg "NO_UNITY" "TIMEOUT;COST" "SOURCES;TORCH_FREE;LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${arg_TORCH_FREE})
  if(arg_NO_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  endif()
  # Less is not possible with the precompiled header, and more costs a test seconds to compile; the libraries under test
  # stay as users run them.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${name} PRIVATE lockstep_options ${arg_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  if(arg_SOURCES)
    target_link_libraries(${name} PRIVATE lockstep_torch)
    lockstep_use_pch(${name})
  endif()
  if(arg_TORCH_FREE)
    lockstep_torch_free(${arg_TORCH_FREE})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  # Loading LibTorch takes longer than most tests, above all under a sanitizer. The build folder's name tells a program
  # from that of another build, since one ctest run may hold several.
  if(NOT LOCKSTEP_LIST_TESTS)
    cmake_path(GET PROJECT_BINARY_DIR FILENAME build)
    add_test(NAME ${build}/${name} COMMAND ${name})
    # In a new clone, ctest knows no times: the longest begin first, so that no core is idle while the last one runs.
    set(cost 100)
    if(arg_COST)
      set(cost ${arg_COST})
    elseif(LOCKSTEP_SANITIZER)
      set(cost 200)
    endif()
    set_tests_properties(${build}/${name} PROPERTIES
      LABELS "${arg_LABELS}" TIMEOUT 1800 COST ${cost} ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT}")
    return()
  endif()
  # Discovery waits until ctest runs: a build machine need not be able to load LibTorch.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120)
  # gtest_discover_tests itself cannot hand on a property that is a list.
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake "
if(${name}_TESTS)
  set_tests_properties(\${${name}_TESTS} PROPERTIES
    LABELS \"${arg_LABELS}\" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT \"${LOCKSTEP_TEST_ENVIRONMENT}\")
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
endfunction()

# lockstep_repeat_test(name program FILTER tests ENVIRONMENT variables LABELS ...): some tests of a GoogleTest program once more, with
# other variables.
function(lockstep_repeat_test name program)
  cmake_parse_arguments(arg "" "FILTER" "ENVIRONMENT;LABELS" ${ARGN})
  cmake_path(GET PROJECT_BINARY_DIR FILENAME build)
  add_test(NAME ${build}/${name} COMMAND ${program} --gtest_filter=${arg_FILTER})
  set_tests_properties(${build}/${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT 1800 ENVIRONMENT "${LOCKSTEP_TEST_ENVIRONMENT};${arg_ENVIRONMENT}"
    FAIL_REGULAR_EXPRESSION "PASSED  . 0 tests")
endfunction()
