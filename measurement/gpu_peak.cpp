#include "lockstep/measurement/gpu_peak.h"

#include <array>
#include <cctype>

namespace lockstep::measurement {
namespace {

/// In 10^12 operations per second, from the makers' data sheets, without sparsity; 0: not stated.
struct GpuPeak {
  const char* part;  ///< of the driver's name
  double float64;
  double float32;
  double tf32;
  double bfloat16;
  double float16;
};

// The first match counts, so longer names come first.
constexpr std::array kPeaks = {
    GpuPeak{"B200", 40, 80, 1125, 2250, 2250},
    GpuPeak{"GH200", 67, 67, 494.7, 989.4, 989.4},
    GpuPeak{"H200 NVL", 60, 60, 417.5, 835.5, 835.5},
    GpuPeak{"H200", 67, 67, 494.7, 989.4, 989.4},
    GpuPeak{"H100 NVL", 60, 60, 417.5, 835.5, 835.5},
    GpuPeak{"H100 PCIe", 51, 51, 378, 756, 756},
    GpuPeak{"H100", 67, 67, 494.7, 989.4, 989.4},
    GpuPeak{"H800", 1, 67, 494.7, 989.4, 989.4},
    GpuPeak{"A100", 19.5, 19.5, 156, 312, 312},
    GpuPeak{"A800", 19.5, 19.5, 156, 312, 312},
    GpuPeak{"A40", 0.585, 37.4, 74.8, 149.7, 149.7},
    GpuPeak{"A30", 10.3, 10.3, 82, 165, 165},
    GpuPeak{"A10G", 0.547, 35, 35, 70, 70},
    GpuPeak{"A10", 0.488, 31.2, 62.5, 125, 125},
    GpuPeak{"L40S", 1.4, 91.6, 183, 362, 362},
    GpuPeak{"L40", 1.4, 90.5, 90.5, 181, 181},
    GpuPeak{"L4", 0.47, 30.3, 60, 121, 121},
    GpuPeak{"RTX A6000", 0.6, 38.7, 77.4, 154.8, 154.8},
    GpuPeak{"RTX 4090", 1.3, 82.6, 82.6, 165.2, 165.2},
    GpuPeak{"RTX 3090", 0.56, 35.6, 35.6, 71, 71},
    GpuPeak{"V100-PCIE", 7, 14, 0, 0, 112},
    GpuPeak{"V100", 7.8, 15.7, 0, 0, 125},
    GpuPeak{"Tesla T4", 0.25, 8.1, 0, 0, 65},
    GpuPeak{"P100", 4.7, 9.3, 0, 0, 18.7},
    GpuPeak{"MI300X", 163.4, 163.4, 653.7, 1307.4, 1307.4},
    GpuPeak{"MI250X", 47.9, 47.9, 0, 191.5, 191.5},
};

double peak_of(const GpuPeak& peak, MatrixNumbers numbers) {
  switch (numbers) {
    case MatrixNumbers::kFloat64:
      return peak.float64;
    case MatrixNumbers::kFloat32:
      return peak.float32;
    case MatrixNumbers::kTf32:
      return peak.tf32;
    case MatrixNumbers::kBFloat16:
      return peak.bfloat16;
    case MatrixNumbers::kFloat16:
      break;
  }
  return peak.float16;
}

/// Whether `part` stands in `name` as words of its own: L4 is no part of L40.
bool has_words(const std::string& name, const std::string& part) {
  const auto is_letter = [&](size_t at) {
    return at < name.size() && (std::isalnum(static_cast<unsigned char>(name[at])) != 0);
  };
  for (size_t at = name.find(part); at != std::string::npos; at = name.find(part, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + part.size())) return true;
  }
  return false;
}

}  // namespace

std::optional<double> gpu_peak_flops(const std::string& name, MatrixNumbers numbers) {
  for (const auto& peak : kPeaks) {
    if (!has_words(name, peak.part)) continue;
    const double stated = peak_of(peak, numbers);
    return stated > 0 ? std::optional(1e12 * stated) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep::measurement
