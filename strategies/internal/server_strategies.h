#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

// Without torch headers, so that server_strategies_absent.cpp compiles at once.
namespace lockstep {

class Strategy;
struct StrategyRequest;
using StrategyFactory =
    std::function<std::unique_ptr<Strategy>(const StrategyRequest&)>;  // as in make_strategy.h

/// Adds the strategies that train with parameter servers to make_strategy()'s table. A program that never
/// does so can link server_strategies_absent.cpp, which adds none, and do without the sources of parameter
/// servers.
void add_server_strategies(std::map<std::string, StrategyFactory>& factories);

}  // namespace lockstep
