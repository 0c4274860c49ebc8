#include "lockstep/datasets/images/internal/augmentation_draws.h"

#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15U;

/// SplitMix64's mixing function.
uint64_t mixed(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

/// Returns a number in [0, 1).
double unit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// The numbers of one draw that takes several.
class DrawStream {
 public:
  explicit DrawStream(uint64_t state) : state_(state) {}

  /// Returns a number in (0, 1].
  double unit_above_zero() { return 1 - unit(mixed(state_ += kGamma)); }
  /// Returns a number of the standard normal distribution (Box and Muller, 1958).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(unit_above_zero()));
    return radius * std::cos(2 * std::numbers::pi * unit_above_zero());
  }
  /// Returns the logarithm of a number of the gamma distribution. Small shapes often draw numbers that a
  /// double cannot hold.
  double log_gamma(double shape) {
    // A draw of a shape below 1 is a draw of one more, times a power of a uniform number.
    const double boost = shape < 1 ? std::log(unit_above_zero()) / shape : 0;
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    // Nearly every try is taken.
    while (true) {
      const double x = normal();
      const double root = 1 + c * x;
      if (root <= 0) continue;
      const double log_v = 3 * std::log(root);
      if (std::log(unit_above_zero()) < x * x / 2 + d * (1 - std::exp(log_v) + log_v))
        return std::log(d) + log_v + boost;
    }
  }

 private:
  uint64_t state_;
};

}  // namespace

ExampleDraws::ExampleDraws(uint64_t seed, int64_t epoch, uint64_t example)
    : state_(mixed(mixed(mixed(seed) + static_cast<uint64_t>(epoch)) + example)) {}

uint64_t ExampleDraws::bits(int number) const {
  return mixed(state_ + kGamma * static_cast<uint64_t>(number + 1));
}

int64_t ExampleDraws::below(int number, int64_t count) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>((static_cast<Wide>(bits(number)) * static_cast<uint64_t>(count)) >> 64);
}

double ExampleDraws::between(int number, double from, double to) const {
  return from + (to - from) * unit(bits(number));
}

double ExampleDraws::beta(int number, double alpha) const {
  DrawStream stream(bits(number));
  const double first = stream.log_gamma(alpha);
  return 1 / (1 + std::exp(stream.log_gamma(alpha) - first));
}

}  // namespace lockstep
