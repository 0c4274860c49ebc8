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
  const auto options =
      cluster_options(environment_of({{"LOCKSTEP_ADDRESS", "10.0.0.7"},
                                      {"LOCKSTEP_JOB_TOKEN", "00112233445566778899aabbccddeeff"},
                                      {"LOCKSTEP_CERTIFICATE", "/a.crt"},
                                      {"LOCKSTEP_CERTIFICATE_KEY", "/a.key"},
                                      {"LOCKSTEP_CERTIFICATE_AUTHORITY", "/ca.crt"},
                                      {"LOCKSTEP_MUNGE", "0"},
                                      {"LOCKSTEP_MUNGE_SOCKET", "/munge"},
                                      {"LOCKSTEP_LISTEN_FD", "5"},
                                      {"LOCKSTEP_JOIN_TIMEOUT", "20"},
                                      {"LOCKSTEP_SHARED_MEMORY", "0"}}));
  EXPECT_EQ(options.address, "10.0.0.7");
  EXPECT_EQ(options.token, "00112233445566778899aabbccddeeff");
  ASSERT_TRUE(options.certificate);
  EXPECT_EQ(options.certificate->certificate, "/a.crt");
  EXPECT_EQ(options.certificate->key, "/a.key");
  EXPECT_EQ(options.certificate->authority, "/ca.crt");
  EXPECT_EQ(options.uses_munge, false);
  EXPECT_EQ(options.munge_socket, "/munge");
  EXPECT_EQ(options.listening_socket, 5);
  EXPECT_EQ(options.join_timeout, std::chrono::seconds(20));
  EXPECT_FALSE(options.uses_shared_memory);
}

TEST(ClusterOptions, RefuseATokenThatCouldBeGuessedWithoutSayingIt) {
  const std::string hex = "8f4e1c7a90d2b3655e1fa07c3b9d6428";  // 128 bits
  for (const std::string& strong :
       {hex, hex + hex, std::string("q7Xk2mZr9TbWc4LpN8vHsY"), std::string("kJ3+fR8/zQ1wUe5TnB0aYg==")})
    EXPECT_NO_THROW(check_job_token(strong)) << strong;
  for (const std::string& weak :
       {std::string("s3cret"), hex.substr(1), std::string(100, 'a'),
        std::string("123456789012345678901234567890"), std::string("correct horse battery")}) {
    const auto message = message_of<InvalidArgument>([&] {
      cluster_options(environment_of({{"LOCKSTEP_JOB_TOKEN", weak}}));
    });
    EXPECT_THAT(message, AllOf(HasSubstr("LOCKSTEP_JOB_TOKEN: expected a secret of 128 bits or more"),
                               HasSubstr(std::to_string(weak.size()) + " characters"),
                               ::testing::Not(HasSubstr(weak))));
  }
}

TEST(ClusterOptions, NameTheVariableOfACertificateThatIsMissing) {
  const Variables all{{"LOCKSTEP_CERTIFICATE", "/a.crt"},
                      {"LOCKSTEP_CERTIFICATE_AUTHORITY", "/ca.crt"},
                      {"LOCKSTEP_CERTIFICATE_KEY", "/a.key"}};
  for (const auto& [name, value] : all) {
    auto variables = all;
    variables[name] = "";
    EXPECT_THAT(message_of<InvalidArgument>([&] { cluster_options(environment_of(variables)); }),
                HasSubstr("expected " + name + " together with LOCKSTEP_CERTIFICATE"));
  }
}

TEST(ClusterOptions, HaveDefaultsWithoutVariables) {
  const auto options = cluster_options(environment_of({}));
  EXPECT_EQ(options.address, "");
  EXPECT_FALSE(options.certificate);
  EXPECT_FALSE(options.uses_munge);
  EXPECT_FALSE(options.listening_socket);
  EXPECT_EQ(options.join_timeout, std::chrono::minutes(5));
  EXPECT_TRUE(options.uses_shared_memory);
}

TEST(ClusterOptions, NameAMalformedVariable) {
  for (const auto& [name, value] : Variables{{"LOCKSTEP_LISTEN_FD", "five"},
                                             {"LOCKSTEP_JOIN_TIMEOUT", "0"},
                                             {"LOCKSTEP_SHARED_MEMORY", "2"},
                                             {"LOCKSTEP_MUNGE", "yes"}}) {
    const auto message = message_of<InvalidArgument>([&, &name = name, &value = value] {
      cluster_options(environment_of({{name, value}}));
    });
    EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr(value)));
  }
}

}  // namespace
}  // namespace lockstep
