#pragma once

#include <map>
#include <string>

#include "lockstep/strategies/make_strategy.h"

namespace lockstep {

/// Adds the strategies that train with parameter servers to make_strategy()'s table. A program that never
/// does so can link server_strategies_absent.cpp, which adds none, and do without the sources of parameter
/// servers.
void add_server_strategies(std::map<std::string, StrategyFactory>& factories);

}  // namespace lockstep
