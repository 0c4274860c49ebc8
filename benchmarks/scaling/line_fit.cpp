#include "lockstep/benchmarks/scaling/line_fit.h"

#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {

Line fit_line(const std::vector<LinePoint>& points) {
  if (points.empty()) throw std::invalid_argument("[fit_line] expected at least one point, but got none");
  // Sums of the normal equations with weights 1 / y^2.
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wy = 0;
  double wxy = 0;
  for (const auto& [x, y] : points) {
    if (!(y > 0)) {
      throw std::invalid_argument("[fit_line] expected positive values, but got " + std::to_string(y) +
                                  " at " + std::to_string(x));
    }
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const Line through_origin{0, wxx > 0 ? wxy / wxx : 0};
  const double determinant = w * wxx - wx * wx;
  if (determinant <= 1e-12 * w * wxx) return wxx > 0 ? through_origin : Line{wy / w, 0};
  const Line line{(wy * wxx - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant};
  if (line.intercept < 0) return through_origin;
  if (line.slope < 0) return {wy / w, 0};
  return line;
}

}  // namespace lockstep::benchmarks
