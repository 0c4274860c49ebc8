# lockstep_add_python_test(name SCRIPT file [ARGUMENTS ...] [ENVIRONMENT name=value ...] [LABELS ...] [TIMEOUT s]): a Python
# script that is a test and imports packages of LOCKSTEP_TEST_PYTHONPATH. Without these it is skipped, and says why.
function(lockstep_add_python_test name)
  cmake_parse_arguments(arg "" "SCRIPT;TIMEOUT" "ARGUMENTS;ENVIRONMENT;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(LOCKSTEP_TEST_PYTHON AND LOCKSTEP_TEST_PYTHONPATH)
    cmake_path(ABSOLUTE_PATH arg_SCRIPT BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME ${name} COMMAND ${LOCKSTEP_TEST_PYTHON} ${arg_SCRIPT} ${arg_ARGUMENTS})
    # The packages come without bytecode, and compiling torch takes longer than most tests. So the first test that imports a
    # module keeps its bytecode in the build folder, also if the user's environment says that Python should keep none.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
      "PYTHONPATH=${LOCKSTEP_TEST_PYTHONPATH};LD_LIBRARY_PATH=${LOCKSTEP_TEST_LIBRARY_PATH};\
PYTHONPYCACHEPREFIX=${PROJECT_BINARY_DIR}/python_bytecode;PYTHONDONTWRITEBYTECODE=;${arg_ENVIRONMENT}")
  else()
    set(why "skipped: LOCKSTEP_TEST_PYTHON and LOCKSTEP_TEST_PYTHONPATH name no Python with packages (see docs/building.md)")
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo ${why})
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()
