#include "lockstep/runtime/exchange/make_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/exchange/internal/plan_makers.h"

namespace lockstep {
namespace {

using plan_makers::Ranks;

struct Maker {
  CollectiveKind kind;
  PlanAlgorithm algorithm;
  bool has_fixed_order;
  ExchangePlan (*make)(const Ranks&);
};

// For each collective, the algorithm for short messages comes first.
constexpr Maker kMakers[] = {
    {CollectiveKind::kAllReduce, PlanAlgorithm::kRecursiveDoubling, true, plan_makers::doubling_all_reduce},
    {CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, true, plan_makers::halving_all_reduce},
    {CollectiveKind::kAllReduce, PlanAlgorithm::kDirect, true, plan_makers::direct_all_reduce},
    {CollectiveKind::kAllReduce, PlanAlgorithm::kRing, false, plan_makers::ring_all_reduce},
    {CollectiveKind::kReduceScatter, PlanAlgorithm::kHalving, true, plan_makers::halving_reduce_scatter},
    {CollectiveKind::kReduceScatter, PlanAlgorithm::kDirect, true, plan_makers::direct_reduce_scatter},
    {CollectiveKind::kReduceScatter, PlanAlgorithm::kRing, false, plan_makers::ring_reduce_scatter},
    {CollectiveKind::kAllGather, PlanAlgorithm::kDissemination, true, plan_makers::dissemination_all_gather},
    {CollectiveKind::kAllGather, PlanAlgorithm::kDirect, true, plan_makers::direct_all_gather},
    {CollectiveKind::kAllGather, PlanAlgorithm::kRing, true, plan_makers::ring_all_gather},
    {CollectiveKind::kBroadcast, PlanAlgorithm::kTree, true, plan_makers::tree_broadcast},
    {CollectiveKind::kBroadcast, PlanAlgorithm::kScatterGather, true, plan_makers::scatter_gather_broadcast},
    {CollectiveKind::kBroadcast, PlanAlgorithm::kDirect, true, plan_makers::direct_broadcast},
    {CollectiveKind::kGather, PlanAlgorithm::kTree, true, plan_makers::tree_gather},
    {CollectiveKind::kGather, PlanAlgorithm::kDirect, true, plan_makers::direct_gather},
    {CollectiveKind::kAllToAll, PlanAlgorithm::kDissemination, true, plan_makers::dissemination_all_to_all},
    {CollectiveKind::kAllToAll, PlanAlgorithm::kDirect, true, plan_makers::direct_all_to_all},
    {CollectiveKind::kAllToAll, PlanAlgorithm::kPairwise, true, plan_makers::pairwise_all_to_all},
};

const Maker& maker_of(CollectiveKind kind, PlanAlgorithm algorithm) {
  for (const auto& maker : kMakers) {
    if (maker.kind == kind && maker.algorithm == algorithm) return maker;
  }
  std::string known;
  for (const auto other : algorithms_for(kind)) known += (known.empty() ? "" : ", ") + to_string(other);
  throw InvalidArgument("there is no " + to_string(algorithm) + " algorithm for " + to_string(kind) +
                        "; expected one of " + known);
}

}  // namespace

std::string to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
  }
  return "unknown";
}

std::string to_string(PlanAlgorithm algorithm) {
  switch (algorithm) {
    case PlanAlgorithm::kRecursiveDoubling:
      return "recursive_doubling";
    case PlanAlgorithm::kHalving:
      return "halving";
    case PlanAlgorithm::kDirect:
      return "direct";
    case PlanAlgorithm::kRing:
      return "ring";
    case PlanAlgorithm::kDissemination:
      return "dissemination";
    case PlanAlgorithm::kTree:
      return "tree";
    case PlanAlgorithm::kScatterGather:
      return "scatter_gather";
    case PlanAlgorithm::kPairwise:
      return "pairwise";
  }
  return "unknown";
}

std::vector<PlanAlgorithm> algorithms_for(CollectiveKind kind) {
  std::vector<PlanAlgorithm> algorithms;
  for (const auto& maker : kMakers) {
    if (maker.kind == kind) algorithms.push_back(maker.algorithm);
  }
  return algorithms;
}

bool has_fixed_order(CollectiveKind kind, PlanAlgorithm algorithm) {
  return maker_of(kind, algorithm).has_fixed_order;
}

std::vector<SumOrderStep> sum_order(int size) {
  std::vector<SumOrderStep> steps;
  steps.reserve(static_cast<size_t>(size));
  const plan_makers::Pairing pairing(size);
  for (int pair = 0; pair < pairing.num_pairs; ++pair) steps.push_back({2 * pair, 2 * pair + 1});
  for (int distance = 1; distance < pairing.num_active; distance *= 2) {
    for (int index = 0; index < pairing.num_active; index += 2 * distance)
      steps.push_back({pairing.rank_of(index), pairing.rank_of(index + distance)});
  }
  return steps;
}

ExchangePlan make_plan(CollectiveKind kind, PlanAlgorithm algorithm, int rank, int size, int root) {
  const auto& maker = maker_of(kind, algorithm);
  const auto check = [size](const char* name, int value) {
    if (value < 0 || value >= size)
      throw InvalidArgument("expected a " + std::string(name) + " from 0 to " + std::to_string(size - 1) +
                            ", but got " + std::to_string(value));
  };
  if (size < 1) throw InvalidArgument("expected at least 1 rank, but got " + std::to_string(size));
  check("rank", rank);
  check("root", root);
  auto plan = maker.make({rank, size, root});
  // A rank may have nothing to do in a round of the others.
  std::erase_if(plan.rounds, [](const PlanRound& round) {
    return round.sends.empty() && round.receives.empty() && round.steps.empty();
  });
  return plan;
}

}  // namespace lockstep
