#include "lockstep/datasets/images/internal/digit_drawing.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

namespace lockstep {
namespace {

constexpr double kPi = std::numbers::pi;

struct Point {
  double x;
  double y;
};

/// Part of an ellipse in the unit square. Angles are in degrees, clockwise from the right, as y points down.
struct Arc {
  Point centre;
  double radius_x;
  double radius_y;
  double from;
  double to;
};

struct Line {
  Point from;
  Point to;
};

struct Glyph {
  std::vector<Arc> arcs;
  std::vector<Line> lines;
};

const std::array<Glyph, 10>& glyphs() {
  static const std::array<Glyph, 10> kGlyphs = {{
      {{{{0.50, 0.50}, 0.27, 0.41, 0, 360}}, {}},
      {{}, {{{0.36, 0.26}, {0.53, 0.09}}, {{0.53, 0.09}, {0.53, 0.91}}}},
      {{{{0.50, 0.32}, 0.26, 0.23, 190, 390}}, {{{0.72, 0.44}, {0.22, 0.90}}, {{0.22, 0.90}, {0.80, 0.90}}}},
      {{{{0.46, 0.29}, 0.25, 0.20, 200, 450}, {{0.46, 0.70}, 0.29, 0.21, 270, 520}}, {}},
      {{}, {{{0.62, 0.08}, {0.18, 0.62}}, {{0.18, 0.62}, {0.86, 0.62}}, {{0.66, 0.36}, {0.66, 0.92}}}},
      {{{{0.45, 0.66}, 0.29, 0.25, 230, 500}}, {{{0.74, 0.10}, {0.32, 0.10}}, {{0.32, 0.10}, {0.27, 0.48}}}},
      {{{{0.50, 0.68}, 0.24, 0.22, 0, 360}, {{0.80, 0.62}, 0.54, 0.54, 175, 260}}, {}},
      {{}, {{{0.20, 0.11}, {0.80, 0.11}}, {{0.80, 0.11}, {0.42, 0.91}}}},
      {{{{0.50, 0.30}, 0.20, 0.20, 0, 360}, {{0.50, 0.70}, 0.25, 0.21, 0, 360}}, {}},
      {{{{0.49, 0.32}, 0.23, 0.22, 0, 360}}, {{{0.72, 0.32}, {0.64, 0.91}}}},
  }};
  return kGlyphs;
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). It gives the same numbers
/// everywhere, unlike the distributions of <random>.
class Random {
 public:
  Random(uint64_t seed, uint64_t index) : state_(mix(seed) ^ mix(~index)) {}

  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1.0p-53;
  }

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    return mix(state_);
  }

 private:
  static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
  }

  uint64_t state_;
};

/// Maps points of the unit square to pixels, as a random hand would draw them.
class Handwriting {
 public:
  explicit Handwriting(Random& random) {
    const double angle = random.uniform(-0.22, 0.22);
    const double slant = random.uniform(-0.25, 0.25);
    const double width = random.uniform(15.0, 20.5);
    const double height = random.uniform(17.5, 22.5);
    xx_ = width * std::cos(angle);
    xy_ = height * (slant - std::sin(angle));
    yx_ = width * std::sin(angle);
    yy_ = height * std::cos(angle);
    centre_ = {kDigitSize / 2.0 + random.uniform(-2.0, 2.0), kDigitSize / 2.0 + random.uniform(-2.0, 2.0)};
    bend_x_ = random.uniform(0.0, 0.05);
    bend_y_ = random.uniform(0.0, 0.05);
    phase_x_ = random.uniform(0, 2 * kPi);
    phase_y_ = random.uniform(0, 2 * kPi);
  }

  Point place(Point point) const {
    const double x = point.x - 0.5 + bend_x_ * std::sin(5.0 * point.y + phase_x_);
    const double y = point.y - 0.5 + bend_y_ * std::sin(5.0 * point.x + phase_y_);
    return {centre_.x + xx_ * x + xy_ * y, centre_.y + yx_ * x + yy_ * y};
  }

 private:
  double xx_, xy_, yx_, yy_;
  Point centre_;
  double bend_x_, bend_y_, phase_x_, phase_y_;
};

double distance_to_segment(Point point, Point from, Point to) {
  const double along_x = to.x - from.x;
  const double along_y = to.y - from.y;
  const double length = along_x * along_x + along_y * along_y;
  const double dot = (point.x - from.x) * along_x + (point.y - from.y) * along_y;
  const double t = length > 0 ? std::clamp(dot / length, 0.0, 1.0) : 0.0;
  const double x = point.x - from.x - t * along_x;
  const double y = point.y - from.y - t * along_y;
  return std::sqrt(x * x + y * y);
}

/// The ink coverage of each pixel, 0 ... 1.
class Canvas {
 public:
  explicit Canvas(double pen_radius) : pen_radius_(pen_radius) {}

  void draw_segment(Point from, Point to) {
    const double reach = pen_radius_ + 0.5;
    const auto first = [reach](double a, double b) {
      return std::max<int64_t>(0, static_cast<int64_t>(std::floor(std::min(a, b) - reach)));
    };
    const auto last = [reach](double a, double b) {
      return std::min<int64_t>(kDigitSize - 1, static_cast<int64_t>(std::ceil(std::max(a, b) + reach)));
    };
    for (int64_t y = first(from.y, to.y); y <= last(from.y, to.y); ++y) {
      for (int64_t x = first(from.x, to.x); x <= last(from.x, to.x); ++x) {
        const Point centre{static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5};
        const double covered = std::clamp(reach - distance_to_segment(centre, from, to), 0.0, 1.0);
        double& pixel = coverage_[static_cast<size_t>(y * kDigitSize + x)];
        pixel = std::max(pixel, covered);
      }
    }
  }

  std::span<const double> coverage() const { return coverage_; }

 private:
  double pen_radius_;
  std::array<double, kDigitSize * kDigitSize> coverage_{};
};

/// Draws a curve given as a function of 0 ... 1 in short straight pieces, so that it bends with the hand.
template <typename Curve>
void draw_curve(Canvas& canvas, const Handwriting& hand, int pieces, const Curve& curve) {
  Point previous = hand.place(curve(0.0));
  for (int piece = 1; piece <= pieces; ++piece) {
    const Point next = hand.place(curve(static_cast<double>(piece) / pieces));
    canvas.draw_segment(previous, next);
    previous = next;
  }
}

}  // namespace

DigitImage draw_digit(int64_t digit, uint64_t seed, uint64_t index) {
  Random random(seed, index);
  const Handwriting hand(random);
  Canvas canvas(random.uniform(0.7, 1.7));
  const Glyph& glyph = glyphs().at(static_cast<size_t>(digit));
  for (const Arc& arc : glyph.arcs) {
    // Hands do not always start and end a curve at the same place.
    const double from = (arc.from + random.uniform(-12, 12)) * kPi / 180;
    const double to = (arc.to + random.uniform(-12, 12)) * kPi / 180;
    draw_curve(canvas, hand, 14, [&](double t) {
      const double angle = from + t * (to - from);
      return Point{arc.centre.x + arc.radius_x * std::cos(angle),
                   arc.centre.y + arc.radius_y * std::sin(angle)};
    });
  }
  for (const Line& line : glyph.lines) {
    draw_curve(canvas, hand, 4, [&](double t) {
      return Point{line.from.x + t * (line.to.x - line.from.x), line.from.y + t * (line.to.y - line.from.y)};
    });
  }

  const double ink = random.uniform(170, 255);
  const double noise = random.uniform(0, 24);
  DigitImage image{};
  for (size_t i = 0; i < image.size(); ++i) {
    const double value = ink * canvas.coverage()[i] + random.uniform(-noise, noise);
    image[i] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
  }
  return image;
}

}  // namespace lockstep
