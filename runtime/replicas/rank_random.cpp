#include "lockstep/runtime/replicas/rank_random.h"

#include "lockstep/runtime/replicas/internal/replica_random.h"

namespace lockstep {

RankRandom::RankRandom(const at::Generator& generator)
    : guard_(std::make_unique<ReplicaRandomGuard>(generator)) {}

RankRandom::~RankRandom() = default;

}  // namespace lockstep
