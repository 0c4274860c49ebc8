# Finds LibTorch and makes the interface target lockstep_torch.
#
# LibTorch's libraries are named here, because Torch's own package demands a CUDA toolkit with nvcc, even of programs that
# never touch a GPU. Lockstep has no kernels of its own, so the GPU half compiles without nvcc. An installed lockstep runs
# this same file for its users.

set(LOCKSTEP_TORCH_VERSION 2.11)
# CMAKE_PREFIX_PATH may hold LibTorch's folder, or share/cmake inside it, which is what Python's
# torch.utils.cmake_prefix_path names.
set(lockstep_named_torch)
string(REPLACE ":" ";" lockstep_prefixes "$ENV{CMAKE_PREFIX_PATH}")
foreach(prefix IN LISTS CMAKE_PREFIX_PATH lockstep_prefixes)
  if(EXISTS ${prefix}/Torch/TorchConfig.cmake)
    list(APPEND lockstep_named_torch ${prefix}/../..)
  endif()
endforeach()
find_path(LOCKSTEP_TORCH_ROOT include/torch/csrc/api/include/torch/torch.h
  HINTS ${lockstep_named_torch} ${Torch_DIR}/../../.. ${TORCH_INSTALL_PREFIX} $ENV{TORCH_INSTALL_PREFIX} ${lockstep_torch_hint} PATH_SUFFIXES torch
  DOC "The folder of LibTorch that holds include/ and lib/")
if(NOT LOCKSTEP_TORCH_ROOT)
  message(FATAL_ERROR "LibTorch ${LOCKSTEP_TORCH_VERSION} not found. Name its folder: -DCMAKE_PREFIX_PATH=<folder with include/ and lib/>, "
    "or let Lockstep's scripts/setup.sh fetch it.")
endif()

set(lockstep_torch_found unknown)
if(EXISTS ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h)
  file(STRINGS ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h lockstep_torch_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR)")
endif()
if(NOT lockstep_torch_lines AND EXISTS ${LOCKSTEP_TORCH_ROOT}/include/torch/headeronly/version.h)
  file(STRINGS ${LOCKSTEP_TORCH_ROOT}/include/torch/headeronly/version.h lockstep_torch_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR)")
endif()
if("${lockstep_torch_lines}" MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+)")
  set(lockstep_torch_found ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
endif()
if(NOT lockstep_torch_found VERSION_EQUAL LOCKSTEP_TORCH_VERSION AND NOT LOCKSTEP_ANY_LIBTORCH)
  message(FATAL_ERROR "expected LibTorch ${LOCKSTEP_TORCH_VERSION}, but ${LOCKSTEP_TORCH_ROOT} holds ${lockstep_torch_found}. "
    "Lockstep uses LibTorch's internals; -DLOCKSTEP_ANY_LIBTORCH=ON tries anyway.")
endif()

# With AUTO, a build is for GPUs if all that it needs is there.
set(lockstep_with_cuda OFF)
set(lockstep_torch_word "without CUDA")
if(LOCKSTEP_CUDA)
  include(${CMAKE_CURRENT_LIST_DIR}/LockstepCuda.cmake)
  if(NOT lockstep_cuda_problem)
    set(lockstep_with_cuda ON)
    set(lockstep_torch_word "with CUDA ${lockstep_cuda_major}")
  elseif(LOCKSTEP_CUDA STREQUAL "AUTO")
    string(APPEND lockstep_torch_word ": ${lockstep_cuda_problem}")
    if(lockstep_cuda_major)
      message(WARNING "Lockstep is built without CUDA, although ${LOCKSTEP_TORCH_ROOT} has it: ${lockstep_cuda_problem}. "
        "-DLOCKSTEP_CUDA=OFF leaves this warning out.")
    endif()
  else()
    message(FATAL_ERROR "LOCKSTEP_CUDA=${LOCKSTEP_CUDA}, but Lockstep cannot use CUDA with LibTorch in ${LOCKSTEP_TORCH_ROOT}: "
      "${lockstep_cuda_problem}. -DLOCKSTEP_CUDA=OFF builds without CUDA.")
  endif()
endif()

find_library(LOCKSTEP_TORCH_CPU torch_cpu HINTS ${LOCKSTEP_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
find_library(LOCKSTEP_C10 c10 HINTS ${LOCKSTEP_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
foreach(library torch_cpu c10)
  add_library(lockstep_${library} SHARED IMPORTED)
endforeach()
set_target_properties(lockstep_torch_cpu PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_TORCH_CPU})
set_target_properties(lockstep_c10 PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_C10})

add_library(lockstep_torch INTERFACE)
target_link_libraries(lockstep_torch INTERFACE lockstep_torch_cpu lockstep_c10)
# LibTorch's libraries find NVIDIA's by their own search paths at run time; the linker need not resolve what those hold.
target_link_options(lockstep_torch INTERFACE -Wl,--allow-shlib-undefined)
target_include_directories(lockstep_torch SYSTEM INTERFACE ${LOCKSTEP_TORCH_ROOT}/include ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(lockstep_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)

if(lockstep_with_cuda)
  foreach(library torch_cuda c10_cuda)
    add_library(lockstep_${library} SHARED IMPORTED)
    set_target_properties(lockstep_${library} PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_TORCH_ROOT}/lib/lib${library}.so)
  endforeach()
  add_library(lockstep_cudart SHARED IMPORTED)
  set_target_properties(lockstep_cudart PROPERTIES IMPORTED_LOCATION ${lockstep_cudart})
  # Operators register themselves when libtorch_cuda.so is loaded, so it must stay linked even if no symbol of it is used.
  target_link_libraries(lockstep_torch INTERFACE
    "-Wl,--push-state,--no-as-needed,\"${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so\",--pop-state"
    lockstep_torch_cuda lockstep_c10_cuda lockstep_cudart)
  target_include_directories(lockstep_torch SYSTEM INTERFACE ${lockstep_cuda_headers})
  target_compile_definitions(lockstep_torch INTERFACE USE_C10D_NCCL LOCKSTEP_WITH_CUDA=1)
  if(lockstep_nccl_header)
    # A folder with nccl.h alone can be searched before all others: a toolkit's or one in CPATH may hold another version's header.
    set(lockstep_nccl_folder ${CMAKE_CURRENT_BINARY_DIR}/lockstep_nccl)
    file(CONFIGURE OUTPUT ${lockstep_nccl_folder}/nccl.h
      CONTENT "#pragma GCC system_header\n#include \"${lockstep_nccl_header}\"\n" @ONLY)
    target_include_directories(lockstep_torch BEFORE INTERFACE ${lockstep_nccl_folder})
    message(STATUS "CUDA ${lockstep_cuda_version}: ${lockstep_cuda_headers}; NCCL ${lockstep_nccl_version}: ${lockstep_nccl_header}")
  endif()
endif()
message(STATUS "LibTorch ${lockstep_torch_found} in ${LOCKSTEP_TORCH_ROOT}, ${lockstep_torch_word}")
