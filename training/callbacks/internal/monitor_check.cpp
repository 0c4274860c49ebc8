#include "lockstep/training/callbacks/internal/monitor_check.h"

#include <c10/util/Exception.h>

namespace lockstep {

void check_monitor(const Monitor& monitor, const FitState& state) {
  const auto names = state.log_names();
  if (names.empty() || monitor.is_known(names) || !state.is_chief()) return;
  std::string known;
  for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
  TORCH_WARN("[", monitor.who(), "] no value is called '", monitor.name(), "' among ", known,
             ". Unless a callback adds it, the fit ends with an error after its first epoch.");
}

}  // namespace lockstep
