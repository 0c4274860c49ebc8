#pragma once

#include <ATen/core/Generator.h>

#include <memory>

namespace lockstep {

class ReplicaRandomGuard;

/// While it lives, random operators that this thread calls without a generator draw numbers of the rank's
/// own. Otherwise, all ranks of a replica draw the same ones, as what they compute is the same. Use it where
/// a layer that is cut along a model axis (see AxisRole) computes its own part, such as for dropout there.
///
/// Example:
///
///     strategy.run([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       const auto same = torch::rand({4});  // equal on both ranks of a replica
///       const RankRandom own = replica.rank_random();
///       const auto other = torch::rand({4});  // different on all four ranks
///     });
class RankRandom {
 public:
  /// Draws from `generator`, which must outlive it. ReplicaContext::rank_random() has the rank's.
  explicit RankRandom(const at::Generator& generator);
  ~RankRandom();
  RankRandom(const RankRandom&) = delete;
  RankRandom& operator=(const RankRandom&) = delete;

 private:
  std::unique_ptr<ReplicaRandomGuard> guard_;
};

}  // namespace lockstep
