#include "lockstep/runtime/devices/device_error.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <new>
#include <stdexcept>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const ErrorSource kOnGpu{"MirroredStrategy", 1, {c10::DeviceType::CUDA, 3}};
const ErrorSource kOnCpu{"MirroredStrategy", 2, {c10::DeviceType::CPU, 0}};

const c10::SourceLocation kSomewhere{"a test", __FILE__, __LINE__};

template <typename Error>
auto rethrown(const Error& error, const ErrorSource& place) {
  return [error = std::make_exception_ptr(error), place] { rethrow_from_device(error, place); };
}

// The message is that of LibTorch 2.11's CUDACachingAllocator.
TEST(DeviceError, NamesReplicaDeviceAndBytesWhereAGpuIsOutOfMemory) {
  const c10::OutOfMemoryError error(
      kSomewhere,
      "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.10 GiB of which 1.25 "
      "GiB is free. Including non-PyTorch memory, this process has 77.84 GiB memory in use.");
  EXPECT_THAT(rethrown(error, kOnGpu),
              ThrowsMessage<OutOfMemory>(
                  "[MirroredStrategy] replica 1 on gpu:3 is out of memory: it wanted 2.50 GiB, 1.25 GiB were "
                  "free; a smaller batch needs less, and so do fewer replicas on this GPU"));
}

TEST(DeviceError, NamesReplicaDeviceAndBytesWhereTheCpuIsOutOfMemory) {
  const auto allocate = [] {
    try {
      torch::empty({int64_t{1} << 60}, torch::kByte);
    } catch (...) {
      rethrow_from_device(std::current_exception(), kOnCpu);
    }
  };
  EXPECT_THAT(allocate, ThrowsMessage<OutOfMemory>(AllOf(
                            HasSubstr("replica 2 on cpu:0 is out of memory: it wanted 1152921504606846976 "
                                      "bytes, "),
                            HasSubstr(" bytes were free"), Not(HasSubstr("GPU")))));
}

TEST(DeviceError, TellsTheHostsMemoryFromTheGpus) {
  EXPECT_THAT(rethrown(std::bad_alloc(), kOnGpu),
              ThrowsMessage<OutOfMemory>(AllOf(
                  HasSubstr("[MirroredStrategy] replica 1 on gpu:3: the host is out of memory: "),
                  HasSubstr(" bytes were free; a smaller batch needs less"), Not(HasSubstr("this GPU")))));
}

TEST(DeviceError, KnowsNoBytesWhereNobodySaysThem) {
  EXPECT_THAT(rethrown(c10::OutOfMemoryError(kSomewhere, "none left"), kOnGpu),
              ThrowsMessage<OutOfMemory>("[MirroredStrategy] replica 1 on gpu:3 is out of memory; a smaller "
                                         "batch needs less, and so do fewer replicas on this GPU"));
}

TEST(DeviceError, NamesReplicaAndDeviceWhereADeviceFailed) {
  const c10::AcceleratorError error(kSomewhere, 710, "CUDA error: device-side assert triggered");
  EXPECT_THAT(
      rethrown(error, kOnGpu),
      ThrowsMessage<DeviceFailure>(
          AllOf(HasSubstr("[MirroredStrategy] replica 1 on gpu:3: CUDA error: device-side assert triggered"),
                HasSubstr("Work given to the device before may have caused it"))));
}

// cudaHostAlloc, a graph's instantiation and a new context fail without an allocator's message.
TEST(DeviceError, KnowsCudasOwnOutOfMemory) {
  EXPECT_THAT(rethrown(c10::AcceleratorError(kSomewhere, 2, "CUDA error: out of memory"), kOnGpu),
              ThrowsMessage<OutOfMemory>("[MirroredStrategy] replica 1 on gpu:3 is out of memory; a smaller "
                                         "batch needs less (or the host has no memory to pin left)"));
}

// The messages are those of LibTorch 2.11's ATen/cuda/Exceptions.h.
TEST(DeviceError, TellsWhatCublasAndCudnnReportOfTheDeviceFromTheirComplaints) {
  const auto thrown = [](const std::string& message) {
    return rethrown(c10::Error(kSomewhere, message), kOnGpu);
  };
  for (const std::string message :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"})
    EXPECT_THAT(thrown(message),
                ThrowsMessage<OutOfMemory>(HasSubstr("replica 1 on gpu:3 is out of memory")));
  EXPECT_THAT(thrown("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
              ThrowsMessage<OutOfMemory>(HasSubstr("replica 1 on gpu:3: the host is out of memory")));
  for (const std::string message :
       {"CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"})
    EXPECT_THAT(thrown(message), ThrowsMessage<DeviceFailure>(HasSubstr("replica 1 on gpu:3: " + message)));
  for (const std::string message : {"CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(...)`",
                                    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"})
    EXPECT_THAT(thrown(message), ThrowsMessage<c10::Error>(HasSubstr(message)));
}

TEST(DeviceError, LeavesOtherErrorsAsTheyAre) {
  EXPECT_THAT(rethrown(c10::ValueError(kSomewhere, "a value"), kOnGpu),
              ThrowsMessage<c10::ValueError>(HasSubstr("a value")));
  EXPECT_THAT(rethrown(std::out_of_range("a place"), kOnCpu), ThrowsMessage<std::out_of_range>("a place"));
  EXPECT_THROW(rethrown(7, kOnCpu)(), int);
}

}  // namespace
}  // namespace lockstep
