#include "lockstep/training/callbacks/stop_on_signal.h"

#include <csignal>

#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

void StopOnSignal::on_fit_begin(FitState& state) {
  signal_ = 0;
  agreement_ = std::make_unique<StopAgreement>(state.strategy(), [this] { return interruption_.signal(); });
}

void StopOnSignal::check(FitState& state) {
  signal_ = agreement_->should_stop();
  if (signal_ != 0) state.interrupt(signal_ == SIGINT ? "SIGINT" : "SIGTERM");
}

}  // namespace lockstep
