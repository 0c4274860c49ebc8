#include "lockstep/training/callback.h"

#include "lockstep/training/state_view.h"

namespace lockstep {

void Callback::restore(FitState&, const StateView& saved) {
  saved.fail("nothing for a callback without a state", "a value");
}

}  // namespace lockstep
