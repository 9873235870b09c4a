/*
 * cmd_policy.h - the commands below `policy` that are about policies with names (cmd_policy_named.c)
 */
#ifndef QS_CLI_CMD_POLICY_H
#define QS_CLI_CMD_POLICY_H

int policy_put(int argc, char **argv);
int policy_apply(int argc, char **argv);
int policy_set(int argc, char **argv);
int policy_show(int argc, char **argv);
int policy_list(int argc, char **argv);
int policy_versions(int argc, char **argv);
int policy_remove(int argc, char **argv);

#endif
