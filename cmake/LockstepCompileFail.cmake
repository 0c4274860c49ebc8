# lockstep_add_offences(SOURCES file... [LINK ...]): sources that must compile, and must not with LOCKSTEP_MUST_NOT_COMPILE. The
# build compiles them without it; a test compiles them all with it, as one source, for the tests of lockstep_add_offence().
function(lockstep_add_offences)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  set(all ${CMAKE_CURRENT_BINARY_DIR}/offences.cpp)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  list(TRANSFORM arg_SOURCES REPLACE "(.+)" "#include \"lockstep/${folder}/\\1\"" OUTPUT_VARIABLE text)
  list(JOIN text "\n" text)
  file(CONFIGURE OUTPUT ${all} CONTENT "${text}\n" @ONLY)
  add_library(offences OBJECT ${all})
  target_link_libraries(offences PRIVATE lockstep_options lockstep_torch ${arg_LINK})
  lockstep_use_pch(offences)
  add_test(NAME compile_fail/compile
    COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/check_compile_fail.py compile
            ${PROJECT_BINARY_DIR} ${all} ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/errors.txt)
  set_tests_properties(compile_fail/compile PROPERTIES LABELS compile_fail TIMEOUT 300 FIXTURES_SETUP compile_fail)
endfunction()

# lockstep_add_offence(name expect [forbidden]): the first error of this offence must match an expression, and none of its errors
# another one (Python's regular expressions).
function(lockstep_add_offence name)
  add_test(NAME compile_fail/${name}
    COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/check_compile_fail.py check
            ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/errors.txt ${name} ${ARGN})
  set_tests_properties(compile_fail/${name} PROPERTIES LABELS compile_fail TIMEOUT 60 FIXTURES_REQUIRED compile_fail)
endfunction()
