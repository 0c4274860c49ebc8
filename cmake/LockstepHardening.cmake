# Hardening of optimised builds: errors in memory end the program before an attacker can use them. tests/install/check_hardening.py
# looks for it in the files that are linked.
#
# It applies to builds of Lockstep itself. A project that embeds Lockstep decides how its code is compiled, ours included, and its
# directory's options reach ours. The options are those of the directory, not of lockstep_options, whose users would inherit them:
# all targets share them, as the precompiled header demands.
#
# Sanitizers look for the same errors themselves, and -O0 has no fortified functions. -D_GLIBCXX_ASSERTIONS is left out: its
# checks in inner loops cost too much. The resizing of images executes 12 % more instructions with it, and none more with the rest.

if(NOT PROJECT_IS_TOP_LEVEL OR LOCKSTEP_SANITIZER)
  return()
endif()
include(CheckCXXCompilerFlag)

# Level 3 also bounds objects whose size is known only at run time. Debian's and Ubuntu's compilers may set a level of their own.
set(lockstep_fortify 2)
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
   OR (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 9))
  set(lockstep_fortify 3)
endif()
set(lockstep_hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${lockstep_fortify} -fPIC)
# Not every compiler has each of these for every processor: -fcf-protection is x86's.
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "LOCKSTEP_HAS${flag}" has_flag)
  check_cxx_compiler_flag(${flag} ${has_flag})
  if(${has_flag})
    list(APPEND lockstep_hardening ${flag})
  endif()
endforeach()

set(lockstep_is_hardened $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
add_compile_options("$<${lockstep_is_hardened}:${lockstep_hardening}>")
add_link_options("$<${lockstep_is_hardened}:LINKER:-z,relro,-z,now,-z,noexecstack>"
  "$<$<AND:${lockstep_is_hardened},$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>>:-pie>")
