-- Each service owns its own database.
CREATE DATABASE gateway;
CREATE DATABASE orchestrator;
CREATE DATABASE retrieval;
CREATE DATABASE approval;
