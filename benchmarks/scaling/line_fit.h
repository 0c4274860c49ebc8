#pragma once

#include <vector>

namespace lockstep::benchmarks {

struct Line {
  double intercept = 0;
  double slope = 0;

  double at(double x) const { return intercept + slope * x; }
};

struct LinePoint {
  double x = 0;
  double y = 0;
};

/// The line of least squares of the relative errors (line.at(x) - y) / y, so that microseconds count as much
/// as seconds. Neither intercept nor slope is negative, as times are: where one would be, it is 0 and the
/// other alone is fitted. A single point, or points with one x, give a line through the origin. Throws
/// std::invalid_argument where there is no point, or a y is not positive.
Line fit_line(const std::vector<LinePoint>& points);

}  // namespace lockstep::benchmarks
