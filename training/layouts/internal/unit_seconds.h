#pragma once

#include <vector>

namespace lockstep {

/// A unit of stage 3 in one micro-batch.
struct UnitSeconds {
  double forward = 0, backward = 0;  ///< of its computing, with the sums of cut layers and the like
  double gather = 0;                 ///< of its parameters over the link
  double sum = 0;                    ///< of its gradients over the link, once its backward is done
};

// Seconds for which a device waits for the link, which carries one gather or sum at a time, in their order. A
// unit is gathered while the one before it computes.

/// In forward.
double waits_of_forward(const std::vector<UnitSeconds>& units);
/// In backward, with the sums that are left after it. If `has_last_unit`, the last one is still there from
/// forward.
double waits_of_backward(const std::vector<UnitSeconds>& units, bool has_last_unit);

}  // namespace lockstep
