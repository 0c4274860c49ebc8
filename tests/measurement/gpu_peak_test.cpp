#include "lockstep/measurement/gpu_peak.h"

#include <gtest/gtest.h>

namespace lockstep::measurement {
namespace {

// The numbers are those of NVIDIA's and AMD's data sheets, without sparsity.
TEST(GpuPeakTest, KnowsGpusByTheNamesOfTheirDrivers) {
  EXPECT_EQ(gpu_peak_flops("NVIDIA A100-SXM4-80GB", MatrixNumbers::kBFloat16), 312e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA A100-SXM4-80GB", MatrixNumbers::kTf32), 156e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H100 80GB HBM3", MatrixNumbers::kBFloat16), 989.4e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H200", MatrixNumbers::kFloat16), 989.4e12);
  EXPECT_EQ(gpu_peak_flops("Tesla V100-SXM2-16GB", MatrixNumbers::kFloat16), 125e12);
  EXPECT_EQ(gpu_peak_flops("AMD Instinct MI300X", MatrixNumbers::kBFloat16), 1307.4e12);
}

TEST(GpuPeakTest, TellsApartNamesThatBeginAlike) {
  EXPECT_EQ(gpu_peak_flops("NVIDIA H100 PCIe", MatrixNumbers::kBFloat16), 756e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H100 NVL", MatrixNumbers::kBFloat16), 835.5e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA L4", MatrixNumbers::kBFloat16), 121e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA L40S", MatrixNumbers::kBFloat16), 362e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA A10", MatrixNumbers::kFloat16), 125e12);
}

TEST(GpuPeakTest, SaysNothingAboutGpusItDoesNotKnowAndNumbersTheyCannotMultiply) {
  EXPECT_EQ(gpu_peak_flops("NVIDIA GeForce GTX 1080", MatrixNumbers::kFloat32), std::nullopt);
  EXPECT_EQ(gpu_peak_flops("", MatrixNumbers::kFloat32), std::nullopt);
  EXPECT_EQ(gpu_peak_flops("Tesla V100-SXM2-16GB", MatrixNumbers::kBFloat16), std::nullopt);
}

}  // namespace
}  // namespace lockstep::measurement
