# Finds LibTorch and makes the interface target lockstep_torch.
#
# With CUDA, Torch's own package does it. Without, that package is of no use: the wheel's demands a CUDA toolkit
# even of programs that never touch a GPU. Then the two CPU libraries are named here, and nothing of CUDA is
# asked for. An installed lockstep runs this same file for its users.

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

# The GPU half needs a toolkit to compile with, NCCL, and the NVIDIA libraries that libtorch_cuda.so loads: beside a
# wheel (nvidia/), or inside the folder of a LibTorch archive.
if(LOCKSTEP_CUDA STREQUAL "AUTO")
  set(lockstep_with_cuda OFF)
  find_library(LOCKSTEP_CUDNN NAMES cudnn libcudnn.so.9 HINTS ${LOCKSTEP_TORCH_ROOT}/lib ${LOCKSTEP_TORCH_ROOT}/../nvidia/cudnn/lib NO_DEFAULT_PATH)
  if(EXISTS ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so AND LOCKSTEP_CUDNN)
    find_package(CUDAToolkit QUIET)
    find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${LOCKSTEP_TORCH_ROOT}/../nvidia/nccl/include)
    if(CUDAToolkit_FOUND AND LOCKSTEP_NCCL_INCLUDE)
      set(lockstep_with_cuda ON)
    endif()
  endif()
else()
  set(lockstep_with_cuda ${LOCKSTEP_CUDA})
endif()

add_library(lockstep_torch INTERFACE)
if(lockstep_with_cuda)
  # Without a list Torch's package probes for a GPU, which a build machine need not have.
  if(NOT TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
    set(TORCH_CUDA_ARCH_LIST "8.0;9.0")
  endif()
  find_package(Torch REQUIRED PATHS ${LOCKSTEP_TORCH_ROOT}/share/cmake/Torch NO_DEFAULT_PATH)
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${LOCKSTEP_TORCH_ROOT}/../nvidia/nccl/include REQUIRED)
  target_link_libraries(lockstep_torch INTERFACE torch)
  target_include_directories(lockstep_torch SYSTEM INTERFACE ${LOCKSTEP_NCCL_INCLUDE})
  target_compile_definitions(lockstep_torch INTERFACE LOCKSTEP_WITH_CUDA=1)
  set(lockstep_torch_word "with CUDA")
else()
  find_library(LOCKSTEP_TORCH_CPU torch_cpu HINTS ${LOCKSTEP_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
  find_library(LOCKSTEP_C10 c10 HINTS ${LOCKSTEP_TORCH_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
  foreach(library torch_cpu c10)
    add_library(lockstep_${library} SHARED IMPORTED)
  endforeach()
  # The two NVIDIA libraries that even libtorch_cpu.so loads are found by its own search path at run time;
  # the linker need not resolve what they hold.
  set_target_properties(lockstep_torch_cpu PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_TORCH_CPU})
  set_target_properties(lockstep_c10 PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_C10})
  target_link_libraries(lockstep_torch INTERFACE lockstep_torch_cpu lockstep_c10)
  target_link_options(lockstep_torch INTERFACE -Wl,--allow-shlib-undefined)
  target_include_directories(lockstep_torch SYSTEM INTERFACE ${LOCKSTEP_TORCH_ROOT}/include ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(lockstep_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  set(lockstep_torch_word "without CUDA")
endif()
message(STATUS "LibTorch ${lockstep_torch_found} in ${LOCKSTEP_TORCH_ROOT}, ${lockstep_torch_word}")
