#include "lockstep/runtime/devices/cudnn_benchmark.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(CudnnBenchmarkGuard, SetsLibTorchsSettingWhileItLivesAndPutsItBack) {
  auto& context = at::globalContext();
  for (const bool before : {true, false}) {
    context.setBenchmarkCuDNN(before);
    for (const bool enabled : {true, false}) {
      const CudnnBenchmarkGuard benchmark(enabled);
      EXPECT_EQ(context.benchmarkCuDNN(), enabled);
    }
    EXPECT_EQ(context.benchmarkCuDNN(), before);
  }
}

}  // namespace
}  // namespace lockstep
