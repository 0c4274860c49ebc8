#include "lockstep/training/callbacks/fault_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(FaultPlanTest, ReadsEveryKind) {
  EXPECT_THAT(parse_faults("kill@rank1:step20"), ElementsAre(Fault{FaultKind::kKill, 1, 20}));
  EXPECT_THAT(parse_faults("stop@rank0:step1,term@rank2:step3,int@rank10:step4,throw@rank1:step5"),
              ElementsAre(Fault{FaultKind::kStop, 0, 1}, Fault{FaultKind::kTerm, 2, 3},
                          Fault{FaultKind::kInt, 10, 4}, Fault{FaultKind::kThrow, 1, 5}));
  EXPECT_THAT(parse_faults("nan@replica3:step7,ulp@replica0:step9000000000"),
              ElementsAre(Fault{FaultKind::kNan, 3, 7}, Fault{FaultKind::kUlp, 0, 9000000000}));
}

TEST(FaultPlanTest, NamesWhatItCannotRead) {
  for (const std::string text :
       {"", "kill", "kill@rank1", "kill@1:step2", "kill@replica1:step2", "ulp@rank1:step2",
        "kill@rank-1:step2", "kill@rank1:step0", "kill@rank1:step", "kill@rank1:step2x", "kill:step2@rank1",
        "die@rank1:step2", "kill@rank99999999999:step1"}) {
    EXPECT_THAT([&] { parse_faults("term@rank0:step1," + text); },
                ThrowsMessage<InvalidArgument>(HasSubstr("but got '" + text + "'")));
  }
  EXPECT_THROW(parse_faults("kill@rank1:step2,"), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
