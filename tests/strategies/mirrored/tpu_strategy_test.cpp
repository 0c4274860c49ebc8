// In a process without a plugin. tests/device has its trainings.
#include "lockstep/strategies/mirrored/tpu_strategy.h"

#include <gmock/gmock.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(TpuStrategyWithoutAPlugin, SaysThatTheProgramMustLoadOne) {
  EXPECT_THAT(
      message_of<InvalidArgument>([] { TPUStrategy strategy; }),
      HasSubstr(
          "[TPUStrategy] expected a plugin with devices, but LibTorch has none in this process: the program "
          "must load it first, such as by torch_tpu::TorchTpu"));
  EXPECT_THAT(message_of<InvalidArgument>([] { TPUStrategy strategy(nullptr, {.devices = {"cpu:0"}}); }),
              HasSubstr("LibTorch has none in this process"));
}

}  // namespace
}  // namespace lockstep
