#include "lockstep/strategies/ring_all_reduce.h"

#include "lockstep/runtime/hierarchical_backend.h"

namespace lockstep {

std::unique_ptr<CollectiveGroup> RingAllReduce::make_channel(const Devices&,
                                                             std::chrono::milliseconds timeout) const {
  return std::make_unique<HierarchicalGroup>(workers_->layout(), workers_->open_channel(name()), timeout);
}

}  // namespace lockstep
