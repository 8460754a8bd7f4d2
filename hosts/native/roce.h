#ifndef DCBLAB_HOSTS_ROCE_H
#define DCBLAB_HOSTS_ROCE_H

int send_main(int argc, char **argv);
int recv_main(int argc, char **argv);
int replay_main(int argc, char **argv);

#endif
