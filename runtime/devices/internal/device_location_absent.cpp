#include "lockstep/runtime/devices/internal/device_location.h"

namespace lockstep {

void keep_this_thread_near(c10::Device) {}

}  // namespace lockstep
