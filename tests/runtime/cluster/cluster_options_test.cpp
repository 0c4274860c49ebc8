#include "lockstep/runtime/cluster/cluster_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ClusterOptions, AreReadFromTheEnvironment) {
  const auto options = cluster_options(environment_of({{"LOCKSTEP_ADDRESS", "10.0.0.7"},
                                                       {"LOCKSTEP_JOB_TOKEN", "a token"},
                                                       {"LOCKSTEP_LISTEN_FD", "5"},
                                                       {"LOCKSTEP_JOIN_TIMEOUT", "20"},
                                                       {"LOCKSTEP_SHARED_MEMORY", "0"}}));
  EXPECT_EQ(options.address, "10.0.0.7");
  EXPECT_EQ(options.token, "a token");
  EXPECT_EQ(options.listening_socket, 5);
  EXPECT_EQ(options.join_timeout, std::chrono::seconds(20));
  EXPECT_FALSE(options.uses_shared_memory);
}

TEST(ClusterOptions, HaveDefaultsWithoutVariables) {
  const auto options = cluster_options(environment_of({}));
  EXPECT_EQ(options.address, "");
  EXPECT_FALSE(options.listening_socket);
  EXPECT_EQ(options.join_timeout, std::chrono::minutes(5));
  EXPECT_TRUE(options.uses_shared_memory);
}

TEST(ClusterOptions, NameAMalformedVariable) {
  for (const auto& [name, value] : Variables{
           {"LOCKSTEP_LISTEN_FD", "five"}, {"LOCKSTEP_JOIN_TIMEOUT", "0"}, {"LOCKSTEP_SHARED_MEMORY", "2"}}) {
    const auto message = message_of<InvalidArgument>([&, &name = name, &value = value] {
      cluster_options(environment_of({{name, value}}));
    });
    EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr(value)));
  }
}

}  // namespace
}  // namespace lockstep
