#include "lockstep/runtime/devices/internal/device_location.h"

namespace lockstep {

Cpus cpus_near(c10::Device) {
  return {};
}

}  // namespace lockstep
