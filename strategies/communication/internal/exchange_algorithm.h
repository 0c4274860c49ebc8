#pragma once

#include <optional>
#include <string>

#include "lockstep/runtime/exchange/make_plan.h"

namespace lockstep {

/// Returns the algorithm of an all-reduce that CommunicationOptions::exchange_algorithm names; none for
/// `auto`. Throws InvalidArgument listing the names for any other name.
std::optional<PlanAlgorithm> parse_exchange_algorithm(const std::string& name);

}  // namespace lockstep
