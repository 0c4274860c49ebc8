#include "lockstep/training/layouts/internal/unit_seconds.h"

#include <algorithm>
#include <cstddef>

namespace lockstep {

double waits_of_forward(const std::vector<UnitSeconds>& units) {
  double now = 0, computed = 0;
  double gathered = units.empty() ? 0 : units[0].gather;
  for (size_t i = 0; i < units.size(); ++i) {
    const double begin = std::max(now, gathered);
    if (i + 1 < units.size()) gathered = begin + units[i + 1].gather;
    now = begin + units[i].forward;
    computed += units[i].forward;
  }
  return now - computed;
}

double waits_of_backward(const std::vector<UnitSeconds>& units, bool has_last_unit) {
  double now = 0, computed = 0;
  double link = units.empty() || has_last_unit ? 0 : units.back().gather;  // until when it is busy
  double gathered = link;
  for (size_t i = units.size(); i-- > 0;) {
    const double begin = std::max(now, gathered);
    if (i > 0) gathered = link = std::max(link, begin) + units[i - 1].gather;
    now = begin + units[i].backward;
    link = std::max(link, now) + units[i].sum;
    computed += units[i].backward;
  }
  return std::max(now, link) - computed;
}

}  // namespace lockstep
