#include "lockstep/training/trainer/callback.h"

#include "lockstep/training/formats/state_view.h"

namespace lockstep {

void Callback::restore(FitState&, const StateView& saved) {
  saved.fail("nothing for a callback without a state", "a value");
}

}  // namespace lockstep
