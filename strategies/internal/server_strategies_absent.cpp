#include "lockstep/strategies/internal/server_strategies.h"

namespace lockstep {

void add_server_strategies(std::map<std::string, StrategyFactory>&) {}

}  // namespace lockstep
