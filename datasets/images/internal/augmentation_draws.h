#pragma once

#include <cstdint>

namespace lockstep {

/// Numbers drawn by (seed, epoch, example), each by its own number, in any order.
class ExampleDraws {
 public:
  ExampleDraws(uint64_t seed, int64_t epoch, uint64_t example);

  uint64_t bits(int number) const;
  /// Returns a number of 0 to count - 1.
  int64_t below(int number, int64_t count) const;
  /// Returns a number in [from, to), or `from` if both are equal.
  double between(int number, double from, double to) const;
  /// Returns a number of the beta distribution with both parameters `alpha`, above 0: the share of one of two
  /// draws of the gamma distribution (Marsaglia and Tsang, A Simple Method for Generating Gamma Variables,
  /// 2000).
  double beta(int number, double alpha) const;

 private:
  uint64_t state_;
};

/// Numbers of the draws. A number never changes its meaning, so that a resumed training draws the same.
struct DrawNumbers {
  static constexpr int kFlip = 0;
  static constexpr int kRows = 1;
  static constexpr int kColumns = 2;
  static constexpr int kAngle = 3;
  static constexpr int kBrightness = 4;
  static constexpr int kContrast = 5;
  static constexpr int kSaturation = 6;
  static constexpr int kHue = 7;
  static constexpr int kPartner = 8;
  static constexpr int kMixup = 9;
};

/// The drawn changes of one image: a row of ImageAugmentation::draw().
struct ImageChange {
  float row_shift = 0;     ///< of the crop, in pixels
  float column_shift = 0;  ///< likewise
  float is_mirrored = 0;   ///< 0 or 1
  float cosine = 1;        ///< of the angle, counter-clockwise
  float sine = 0;
  float brightness = 1;
  float contrast = 1;
  float saturation = 1;
  float hue = 0;
};
inline constexpr int64_t kChangeColumns = sizeof(ImageChange) / sizeof(float);

}  // namespace lockstep
