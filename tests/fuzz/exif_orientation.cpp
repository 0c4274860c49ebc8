#include "lockstep/datasets/images/internal/exif_orientation.h"

#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int orientation = exif_orientation(std::span(data, size));
  expect(orientation >= 1 && orientation <= 8, "one of EXIF's orientations");
  return 0;
}

}  // namespace lockstep::fuzz
