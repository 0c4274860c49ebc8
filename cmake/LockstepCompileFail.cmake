# lockstep_add_compile_fail_test(name SOURCE file EXPECT regex [OFFENCE n] [LINK ...] [LABELS ...]): the source must
# compile, and must fail to with a first error that matches (Python's regular expressions) once
# LOCKSTEP_MUST_NOT_COMPILE is defined, as n for a source with several offences. Its offence 1 comes first.
function(lockstep_add_compile_fail_test name)
  cmake_parse_arguments(arg "" "SOURCE;EXPECT;OFFENCE" "LINK;LABELS" ${ARGN})
  if(NOT arg_OFFENCE OR arg_OFFENCE EQUAL 1)
    # Never built: it is here for its line in compile_commands.json.
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCE})
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(${name} PRIVATE lockstep_options lockstep_torch ${arg_LINK})
    lockstep_use_pch(${name})
  endif()
  add_test(NAME compile_fail/${name}
    COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/checks/compile_fail/check_compile_fail.py
            ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SOURCE} ${arg_EXPECT} ${arg_OFFENCE})
  set_tests_properties(compile_fail/${name} PROPERTIES LABELS "compile_fail;${arg_LABELS}" TIMEOUT 300)
endfunction()
