#include "lockstep/runtime/backends/internal/nccl_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::Pair;

std::map<std::string, std::string> settings(bool has_expandable_segments) {
  const auto list = nccl_settings(has_expandable_segments);
  return {list.begin(), list.end()};
}

TEST(NcclSettings, OrderLaunchesOfSeveralCommunicatorsImplicitly) {
  EXPECT_THAT(settings(false), Contains(Pair("NCCL_LAUNCH_ORDER_IMPLICIT", "1")));
}

TEST(NcclSettings, EndNoProcessForAFailedCollective) {
  EXPECT_THAT(settings(false), AllOf(Contains(Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")),
                                     Contains(Pair("TORCH_NCCL_ENABLE_MONITORING", "0")),
                                     Contains(Pair("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"))));
}

TEST(NcclSettings, LeaveOutPointersBetweenRanksOnlyIfMemoryIsMappedPieceByPiece) {
  EXPECT_THAT(settings(true), Contains(Pair("NCCL_P2P_DIRECT_DISABLE", "1")));
  EXPECT_THAT(settings(false), Not(Contains(Key("NCCL_P2P_DIRECT_DISABLE"))));
}

TEST(NcclVersion, OfTheHeaderMayBeNewerThanTheLibraryAndDifferInThePatch) {
  EXPECT_NO_THROW(check_nccl_version(22907, 22907));
  EXPECT_NO_THROW(check_nccl_version(22903, 22907));
  EXPECT_NO_THROW(check_nccl_version(23001, 22907));
}

TEST(NcclVersion, OfAnOlderHeaderIsRefusedNamingBoth) {
  const auto message = message_of<InvalidArgument>([] { check_nccl_version(21805, 22907); });
  EXPECT_THAT(message, AllOf(HasSubstr("NCCL 2.18.5"), HasSubstr("NCCL 2.29.7"), HasSubstr("nccl.h")));
}

}  // namespace
}  // namespace lockstep
