#include "lockstep/runtime/devices/cudnn_benchmark.h"

#include <ATen/Context.h>
#include <ATen/native/ConvUtils.h>

namespace lockstep {

// After a measurement, LibTorch would give the allocator's cached memory back to the driver, on all GPUs.
CudnnBenchmarkGuard::CudnnBenchmarkGuard(bool enabled)
    : before_(at::globalContext().benchmarkCuDNN()),
      emptied_cache_before_(at::native::_cudnn_get_conv_benchmark_empty_cache()) {
  at::globalContext().setBenchmarkCuDNN(enabled);
  at::native::_cudnn_set_conv_benchmark_empty_cache(false);
}

CudnnBenchmarkGuard::~CudnnBenchmarkGuard() {
  at::globalContext().setBenchmarkCuDNN(before_);
  at::native::_cudnn_set_conv_benchmark_empty_cache(emptied_cache_before_);
}

}  // namespace lockstep
