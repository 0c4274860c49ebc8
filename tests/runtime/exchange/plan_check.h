#pragma once

#include <string>
#include <vector>

#include "lockstep/runtime/exchange/exchange_plan.h"
#include "lockstep/runtime/exchange/make_plan.h"

namespace lockstep {

/// Carries out the plans of all ranks with symbols in place of values. Returns the first problem, or an empty
/// text if the plans are correct:
///
/// - Every message is received by its peer, with as many blocks, and into blocks of the same size.
/// - No rank waits for ever, even if a message can only be sent once its peer is ready to receive it.
/// - No rank sends or adds a block that has no value yet, or adds a contribution twice.
/// - No round receives into a block that it also sends, except with the same blocks in the same order.
/// - Afterwards, each block has what CollectiveKind states: every contribution exactly once, added in the
/// order
///   of sum_order() if has_fixed_order().
std::string problem_of(const std::vector<ExchangePlan>& plans, CollectiveKind kind, PlanAlgorithm algorithm,
                       int root = 0);

/// Makes the plans of all ranks.
std::vector<ExchangePlan> plans_of(CollectiveKind kind, PlanAlgorithm algorithm, int size, int root = 0);

}  // namespace lockstep
